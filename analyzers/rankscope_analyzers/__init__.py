"""Turn step records into one verdict per training job: who, why, since when, at what cost."""
