"""One module per source; `rankscope_agent.registry` names them all in one table."""
