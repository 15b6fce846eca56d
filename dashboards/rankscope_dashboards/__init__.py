"""Generated views over the metric catalogue: dashboards, recording rules and alerts."""
