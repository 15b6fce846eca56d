"""`rankscope watch`: findings as metrics, their server, and which of several copies is at work."""
