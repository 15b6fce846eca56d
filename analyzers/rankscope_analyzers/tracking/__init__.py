"""Jobs as runs of an MLflow tracking server."""
