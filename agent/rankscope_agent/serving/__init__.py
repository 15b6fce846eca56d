"""What the agent answers: the page of metrics, the API, the stream of step records, its log."""
