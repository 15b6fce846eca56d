"""What training frameworks print about their steps: pure, from lines of logs to values."""
