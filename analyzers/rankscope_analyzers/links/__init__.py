"""RDMA and network ports: counters, states and what differs between peers."""
