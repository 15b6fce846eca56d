"""How exactly the account of a job's GPU time meets what was done to real jobs on gloo."""
