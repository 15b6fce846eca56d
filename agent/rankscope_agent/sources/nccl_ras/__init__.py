"""NCCL's RAS (reliability, availability, serviceability): a running job's state, on request."""
