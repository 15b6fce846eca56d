"""What Prometheus and Alertmanager evaluate: recording rules, alerts and routes."""
