"""Summaries of a node's series, so that rules over a fleet need not read every series."""
