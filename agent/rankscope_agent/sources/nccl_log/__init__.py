"""Following the logs of training jobs and what they make known, over rotations and restarts."""
