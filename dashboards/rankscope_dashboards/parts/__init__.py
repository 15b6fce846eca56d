"""What dashboards are built of: panels, fields, thresholds and links."""
