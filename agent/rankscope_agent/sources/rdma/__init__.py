"""RDMA ports as sysfs shows them: names, values, link changes, and reading them at little cost."""
