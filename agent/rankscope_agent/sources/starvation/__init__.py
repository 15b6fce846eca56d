"""How long training processes wait for a CPU."""
