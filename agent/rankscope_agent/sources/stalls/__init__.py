"""The state of ranks that end no steps, read on request."""
