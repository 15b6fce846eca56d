"""The node agent: reads what a training node knows about its ranks and serves it to Prometheus."""

__version__ = "0.1.0"
