"""Arrays of numbers and statistics that leave out what is unknown; knows nothing of jobs."""
