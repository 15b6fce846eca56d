"""All output formats of a job's report."""
