"""What a node knows of a job that stands still, read on request and kept before it is gone."""
