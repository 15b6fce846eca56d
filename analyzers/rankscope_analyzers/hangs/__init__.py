"""Which ranks a hung job waits for. Pure: from the state of each rank to suspects."""
