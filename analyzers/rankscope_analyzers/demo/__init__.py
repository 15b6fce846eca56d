"""The demo: a real training run and the stack that watches it."""
