"""What a node knows about a stalled job, read on request and saved before it is lost."""
