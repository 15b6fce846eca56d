"""What other packages may import from the agent: metrics, values and pure log parsers."""
