"""Simulated jobs whose records were damaged at random, and all that is made of them."""
