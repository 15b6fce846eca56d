"""A simulated node with GPUs and RDMA ports, for demos, tests and laptops."""
