"""Network interfaces inside training pods with their own network namespaces."""
