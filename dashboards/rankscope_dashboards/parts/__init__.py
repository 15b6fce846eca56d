"""Building blocks of dashboards: panels, fields, thresholds and links."""
