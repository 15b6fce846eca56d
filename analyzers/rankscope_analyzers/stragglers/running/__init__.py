"""The second detector of stragglers, for jobs without records of every rank."""
