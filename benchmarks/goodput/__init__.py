"""How exactly the account of a job's GPU time matches what was done to real jobs on gloo."""
