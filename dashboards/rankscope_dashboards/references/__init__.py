"""Pages of docs/ that are made from tables: metrics, alerts and Xid codes."""
