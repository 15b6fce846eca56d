"""How GPUs and network ports of the node lie to each other on PCI."""
