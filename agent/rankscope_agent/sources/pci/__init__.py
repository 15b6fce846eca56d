"""PCI devices in sysfs: addresses, links, errors and distances."""
