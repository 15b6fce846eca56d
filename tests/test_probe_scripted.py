"""TorchScript under the probe."""

from __future__ import annotations

from pathlib import Path

from installed import skip_without
from probe_jobs.nurseries import Nursery

skip_without("torch", "this test compiles with PyTorch")


def test_functions_that_call_what_is_wrapped_compile(nursery: Nursery, tmp_path: Path) -> None:
    path = tmp_path / "values.pt"
    (ended,) = nursery.run(tmp_path / "rings", "scripted.py", str(path))
    assert ended.code == 0, ended.errors
    assert ended.output == "[2.0, 2.0]\n"
    assert path.exists()
