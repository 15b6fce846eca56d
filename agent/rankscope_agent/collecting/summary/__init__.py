"""What a node's series say together, so that rules over a fleet need not read each of them."""
