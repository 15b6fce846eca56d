"""Turn step records into one verdict per training job: which rank, why, since when, at what cost."""
