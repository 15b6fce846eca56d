"""Running the collectors: scheduling, validation, the series limit and the node's summaries."""
