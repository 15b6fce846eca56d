"""Why an attempt of a job failed, by its logs: pure, from lines to one cause and one rank."""
