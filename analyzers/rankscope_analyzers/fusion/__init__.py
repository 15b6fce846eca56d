"""Findings of all layers put together: evidence, causes, incidents and the report on a job."""
