"""Collectors at work: which run and when, what of theirs goes on the page, what a node sums up."""
