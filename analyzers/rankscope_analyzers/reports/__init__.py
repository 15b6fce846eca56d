"""Every format in which a job's report is given out."""
