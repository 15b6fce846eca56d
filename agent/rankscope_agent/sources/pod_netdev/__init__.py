"""Network interfaces inside training pods, whose network namespaces are their own."""
