"""What programs do with torch's own objects goes on as without the probe."""

from __future__ import annotations

import collections
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import rankscope_probe
from installed import skip_without
from probe_jobs.nurseries import Nursery

torch = pytest.importorskip("torch")
skip_without("torch", "these tests train with PyTorch")


@pytest.mark.parametrize(
    "way", ["loss", "named", "groups", "inherited", "sampled", "compiled", "traced"]
)
def test_torch_is_as_ever_after_some_steps(nursery: Nursery, tmp_path: Path, way: str) -> None:
    outcomes = nursery.run(tmp_path, "untouched.py", way, ranks=2)
    assert [(ended.code, ended.errors) for ended in outcomes] == [(0, "")] * 2


@pytest.mark.parametrize("framework", ["transformers", "lightning"])
def test_a_frameworks_callback_is_pickled_with_its_trainer(framework: str) -> None:
    """As spawning ranks from a notebook does."""
    skip_without(framework, "this test makes its callback")
    callback = getattr(rankscope_probe, f"{framework}_callback")()
    callback.before = 7
    again = pickle.loads(pickle.dumps(callback))
    assert type(again).__mro__[1] is type(callback).__mro__[1]
    assert again.before == 7


class Lazy(Mapping[str, object]):
    """A batch that decodes what it is asked for."""

    def __getitem__(self, key: str) -> object:
        raise AssertionError("decoded")

    def __iter__(self) -> Iterator[str]:
        return iter(["images"])

    def __len__(self) -> int:
        return 1


class LazyDictionary(dict[str, object]):
    """The same, with what it has not decoded as values."""

    def __getitem__(self, key: str) -> object:
        raise AssertionError("decoded")

    def values(self) -> object:  # type: ignore[override]
        raise AssertionError("decoded")


@pytest.mark.parametrize("batch", [Lazy(), [Lazy()], LazyDictionary(images=b"jpeg")])
def test_a_batch_that_decodes_what_it_is_asked_for_is_asked_for_nothing(batch: object) -> None:
    assert rankscope_probe._batch_size(batch, torch.Tensor) == rankscope_probe._SIZE_UNKNOWN


@pytest.mark.parametrize(
    "batch",
    [
        {"ids": torch.zeros(4, 2)},
        collections.OrderedDict(ids=torch.zeros(4, 2)),
        collections.UserDict(ids=torch.zeros(4, 2)),
        ("names", {"ids": torch.zeros(4, 2)}),
    ],
    ids=["dict", "ordered", "user's", "nested"],
)
def test_samples_are_counted_in_collections_of_pythons_own(batch: object) -> None:
    assert rankscope_probe._batch_size(batch, torch.Tensor) == 4
