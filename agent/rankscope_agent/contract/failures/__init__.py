"""Why an attempt of a job failed, according to its logs: pure, from lines to one cause and rank."""
