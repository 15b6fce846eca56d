"""Straggler analysis of step records by an incremental feed, for every parallel layout.

Arrays of ranks have the shape (P, D, T): pipeline stage, data-parallel replica, tensor rank, in the
order of the global ranks. A leading axis counts executed steps. Times are seconds.
"""
