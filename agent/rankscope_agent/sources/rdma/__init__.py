"""RDMA ports in sysfs: names, values and link changes, read at low cost."""
