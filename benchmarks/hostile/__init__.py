"""All attacks of a tenant at once, on real agents and a watch: their cost for other jobs."""
