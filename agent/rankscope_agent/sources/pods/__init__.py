"""The pods on this node: their jobs and the devices they hold."""
