"""All attacks of a tenant at once, on real agents and a watch: what they cost other jobs."""
