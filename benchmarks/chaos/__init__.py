"""A seeded matrix of faults over the whole chain, and what must hold after each of them."""
