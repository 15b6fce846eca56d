"""RDMA and network ports: counters, states and differences between peers."""
