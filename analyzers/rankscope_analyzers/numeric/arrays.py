"""Type aliases for the arrays that analyzers use."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Strings: TypeAlias = npt.NDArray[np.str_]
Booleans: TypeAlias = npt.NDArray[np.bool_]
