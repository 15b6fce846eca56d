"""Data from agents, Prometheus and clusters, without judgement."""
