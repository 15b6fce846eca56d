"""Print as JSON what the probe takes for the sizes of batches, or the error that this raised."""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator, Mapping

import torch

import rankscope_probe


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


BATCHES = {
    "lazy": Lazy(),
    "lazy in a list": [Lazy()],
    "lazy dict": LazyDictionary(images=b"jpeg"),
    "dict": {"ids": torch.zeros(4, 2)},
    "ordered": collections.OrderedDict(ids=torch.zeros(4, 2)),
    "user's": collections.UserDict(ids=torch.zeros(4, 2)),
    "nested": ("names", {"ids": torch.zeros(4, 2)}),
    "objects first": {  # as Ultralytics collates
        "batch_idx": torch.zeros(7),
        "bboxes": torch.zeros(7, 4),
        "cls": torch.zeros(7, 1),
        "im_file": ("a.jpg", "b.jpg", "c.jpg", "d.jpg"),
        "img": torch.zeros(4, 3, 8, 8),
        "ori_shape": ((8, 8),) * 4,
        "ratio_pad": (None,) * 4,
    },
    "patches first": {
        "pixel_values": torch.zeros(9, 3),
        "ids": torch.zeros(4, 2),
        "mask": torch.zeros(4, 2),
    },
    "no agreement": {"ids": torch.zeros(4, 2), "offsets": torch.zeros(5)},
}


def size(batch: object) -> int | str:
    try:
        found = rankscope_probe._batch_size(batch, torch.Tensor)
    except AssertionError as error:
        return str(error)
    return "unknown" if found == rankscope_probe._SIZE_UNKNOWN else found


if __name__ == "__main__":
    print(json.dumps({name: size(batch) for name, batch in BATCHES.items()}))
