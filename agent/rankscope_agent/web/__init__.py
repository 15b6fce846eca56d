"""The HTTP server and its access control; used by the agent and by `rankscope watch`."""
