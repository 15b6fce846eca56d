"""Generated pages of docs/: metrics, alerts and Xid codes."""
