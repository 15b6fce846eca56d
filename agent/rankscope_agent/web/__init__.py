"""How answers travel over HTTP and who gets them; served by the agent and by `rankscope watch`."""
