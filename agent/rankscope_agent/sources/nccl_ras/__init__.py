"""What NCCL's RAS (reliability, availability, serviceability) says of a running job, on request."""
