"""The kernel's statistics of its Lustre and CephFS clients, from debugfs."""
