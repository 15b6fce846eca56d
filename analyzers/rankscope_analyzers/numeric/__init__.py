"""Arrays and statistics that skip missing values; independent of jobs."""
