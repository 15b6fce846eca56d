"""Simulated jobs whose records were damaged at random, and all conclusions from them."""
