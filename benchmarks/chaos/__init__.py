"""A seeded matrix of faults over the whole chain, and the invariants that must hold after each."""
