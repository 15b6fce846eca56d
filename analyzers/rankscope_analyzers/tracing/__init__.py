"""Jobs as traces: spans of jobs, their attempts, incidents and checkpoints, sent by OTLP."""
