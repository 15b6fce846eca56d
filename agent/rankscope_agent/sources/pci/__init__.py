"""PCI devices as sysfs shows them: addresses, links, errors, and how far two are apart."""
