"""What agents, Prometheus and clusters answer, without any judgement."""
