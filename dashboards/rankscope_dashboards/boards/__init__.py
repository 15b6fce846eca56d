"""The dashboards themselves: executive, on-call and debug."""
