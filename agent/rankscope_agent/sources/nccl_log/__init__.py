"""Follows the logs of training jobs across rotations and restarts."""
