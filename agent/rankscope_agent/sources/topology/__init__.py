"""How GPUs and network ports of the node are connected over PCI."""
