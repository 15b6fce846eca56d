"""A node of GPUs and RDMA ports that is not there, for demos, tests and laptops."""
