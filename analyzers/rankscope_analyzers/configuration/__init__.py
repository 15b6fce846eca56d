"""The cluster's configuration, rankscope.yaml: its schema, its errors, its values."""
