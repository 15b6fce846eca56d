"""What the agent serves: metrics, API, step records; and its log."""
