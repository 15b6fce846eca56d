"""`rankscope fabric-check`: what the links between a job's nodes carry, and which is slow."""
