"""What the agent was told, by flags and environment variables."""
