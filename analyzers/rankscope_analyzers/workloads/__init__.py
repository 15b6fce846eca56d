"""What a cluster's objects show of its jobs: states, ends, causes. Pure: JSON in, values out."""
