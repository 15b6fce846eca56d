"""Evidence and findings of all layers combined into causes, incidents and the report on a job."""
