"""The declarations of all series that Rankscope exports; `catalogue` lists them all.

One module per source, and one each for the agent itself, the node's summary and the watch. Names
carry the prefix, base units and `_total`; labels are bounded. Rank series carry only `job_id` and
`rank`: everything else about a rank is on `rankscope_rank_info`.
"""
