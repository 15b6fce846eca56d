"""What keeps an error that nobody expected at the job, agent or trace that it came of."""
