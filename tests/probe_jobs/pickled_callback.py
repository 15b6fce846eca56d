"""Pickle the probe's callback as spawning ranks does; usage: pickled_callback.py FRAMEWORK."""

from __future__ import annotations

import pickle
import sys

import rankscope_probe

if __name__ == "__main__":
    callback = getattr(rankscope_probe, f"{sys.argv[1]}_callback")()
    callback.before = 7
    again = pickle.loads(pickle.dumps(callback))
    assert type(again).__mro__[1] is type(callback).__mro__[1], type(again).__mro__
    assert again.before == 7, vars(again)
