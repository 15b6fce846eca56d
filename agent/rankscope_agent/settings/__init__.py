"""The agent's settings, from flags and environment variables."""
