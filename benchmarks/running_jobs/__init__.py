"""Real training jobs on gloo, healthy and not, and what a user sees of each while it runs."""
