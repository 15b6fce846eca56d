"""The cluster's one configuration, rankscope.yaml: what it may hold, and what is wrong with it."""
