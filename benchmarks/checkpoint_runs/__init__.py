"""Real jobs on gloo that save, fail and diverge: what is reported, against their own log."""
