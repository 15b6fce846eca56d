"""`rankscope watch`: findings as metrics, their server, and leader election."""
