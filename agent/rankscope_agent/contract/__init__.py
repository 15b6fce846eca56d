"""What the rest of Rankscope may know of the agent: metrics, values and pure parsers of logs."""
