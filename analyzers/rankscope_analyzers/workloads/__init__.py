"""What a cluster's objects say of its jobs: states, ends and causes. Pure: JSON in, values out."""
