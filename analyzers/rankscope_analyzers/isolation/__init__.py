"""Confines unexpected errors to the job, agent or trace that caused them."""
