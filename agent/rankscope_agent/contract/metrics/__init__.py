"""The declarations of all series that Rankscope exports; `catalogue` lists them all.

One module per source, and one each for the agent itself, what a node sums up, and the watch. Names
carry the prefix, base units and `_total`; labels are bounded. Rank series carry `job_id` and `rank`
alone: what else there is to know about a rank stands on `rankscope_rank_info`.
"""
