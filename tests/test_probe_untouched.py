"""What programs do with torch's own objects goes on as without the probe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from installed import skip_without
from probe_jobs.nurseries import Nurseries, Nursery

skip_without("torch", "these tests train with PyTorch")


@pytest.mark.parametrize(
    "way", ["loss", "named", "groups", "inherited", "sampled", "compiled", "traced"]
)
def test_torch_is_as_ever_after_some_steps(nursery: Nursery, tmp_path: Path, way: str) -> None:
    outcomes = nursery.run(tmp_path, "untouched.py", way, ranks=2)
    assert [(ended.code, ended.errors) for ended in outcomes] == [(0, "")] * 2


@pytest.fixture(scope="module")
def sizes(
    nurseries: Nurseries, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, int | str]:
    """Give what the probe takes for the size of each batch, or the error that this raised."""
    (ended,) = nurseries.bare.run(tmp_path_factory.mktemp("batches"), "batch_sizes.py")
    assert ended.code == 0, ended.errors
    found: Mapping[str, int | str] = json.loads(ended.output)
    return found


@pytest.mark.parametrize("batch", ["lazy", "lazy in a list", "lazy dict"])
def test_a_batch_that_decodes_what_it_is_asked_for_is_asked_for_nothing(
    sizes: Mapping[str, int | str], batch: str
) -> None:
    assert sizes[batch] == "unknown"


@pytest.mark.parametrize("batch", ["dict", "ordered", "user's", "nested"])
def test_samples_are_counted_in_collections_of_pythons_own(
    sizes: Mapping[str, int | str], batch: str
) -> None:
    assert sizes[batch] == 4


@pytest.mark.parametrize("batch", ["objects first", "patches first", "no agreement"])
def test_samples_are_what_most_fields_of_a_batch_have(
    sizes: Mapping[str, int | str], batch: str
) -> None:
    assert sizes[batch] == 4
