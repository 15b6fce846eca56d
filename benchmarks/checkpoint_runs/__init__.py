"""Real jobs on gloo that save, fail and diverge: what is said of them, against their own log."""
