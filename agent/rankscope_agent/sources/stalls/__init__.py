"""Where ranks stand that end no steps, looked at on request."""
