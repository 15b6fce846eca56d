"""Real training jobs on gloo, healthy and not, and what a user is told of each while it runs."""
