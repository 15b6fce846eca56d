"""A program that trains, for processes that import torch themselves or have been forked with it.

Without collections of garbage, which meet torch's modules again and again, a start takes two thirds
of the time.
"""

from __future__ import annotations

TRAIN = """
import gc
gc.disable()
import sys, torch
weight = torch.ones(1, requires_grad=True)
optimizer = torch.optim.SGD([weight])
for _ in range(6):
    (weight * 2).sum().backward()
    optimizer.step()
print("trained", torch.cuda.is_initialized())
gc.freeze()
"""
"""Trains for six steps."""
