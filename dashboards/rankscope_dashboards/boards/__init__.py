"""The dashboards themselves: executive, on-call, debug, checkpoints and learning."""
