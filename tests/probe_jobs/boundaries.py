"""Ten steps of one unusual training loop each; usage: boundaries.py CASE."""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

STEPS = 10
MODEL = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))


def backward() -> torch.Tensor:
    loss = MODEL(torch.randn(8, 4)).square().mean()
    loss.backward()
    return loss


def loader(batches: int = STEPS) -> DataLoader[tuple[torch.Tensor, ...]]:
    return DataLoader(TensorDataset(torch.randn(batches * 8, 4)), batch_size=8)


def no_loader() -> None:
    optimizer = torch.optim.AdamW(MODEL.parameters())
    for _ in range(STEPS):
        backward()
        optimizer.step()


def accumulation() -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1)
    for number, (inputs,) in enumerate(loader(STEPS * 4), start=1):
        MODEL(inputs).sum().backward()
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()


def two_optimizers() -> None:
    first = torch.optim.SGD(MODEL[0].parameters(), lr=0.1)
    second = torch.optim.SGD(MODEL[1].parameters(), lr=0.1)
    for _ in range(STEPS):
        backward()
        first.step()
        for _ in range(5):
            second.step()


def subgroups() -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1)
    parameters = list(MODEL.parameters())
    for _ in range(STEPS):
        backward()
        for parameter in parameters:
            optimizer.param_groups[0]["params"] = [parameter]
            optimizer.step()


def empty_shard() -> None:
    """Step with two optimizers: of the first, this rank holds no parameters."""
    empty, other = (torch.optim.SGD(MODEL.parameters(), lr=0.1) for _ in range(2))
    empty.param_groups.clear()
    for _ in range(STEPS):
        backward()
        empty.step()
        other.step()


def in_backward() -> None:
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in MODEL.parameters()}
    for parameter, optimizer in optimizers.items():
        parameter.register_post_accumulate_grad_hook(lambda _, step=optimizer.step: step())
    for _ in range(STEPS):
        backward()


def closure() -> None:
    optimizer = torch.optim.LBFGS(MODEL.parameters(), max_iter=3)
    for _ in range(STEPS):
        optimizer.step(backward)


def scheduler() -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(STEPS):
        backward()
        optimizer.step()
        schedule.step()


def scaler() -> None:
    """Overflow in steps 3 and 6, where the scaler leaves the optimizer's step out."""
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1)
    scaling = torch.amp.GradScaler("cpu")
    for number in range(STEPS):
        optimizer.zero_grad()
        scaling.scale(MODEL(torch.randn(8, 4)).square().mean()).backward()
        if number in (3, 6):
            next(MODEL.parameters()).grad.fill_(float("inf"))  # type: ignore[union-attr]
        scaling.step(optimizer)
        scaling.update()


def evaluation() -> None:
    """Evaluate after step 5, so within the period of step 6."""
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1)
    for number, (inputs,) in enumerate(loader()):
        MODEL(inputs).sum().backward()
        optimizer.step()
        if number == 5:
            with torch.no_grad():
                for (unseen,) in loader(3):
                    MODEL(unseen)


def new_optimizer() -> None:
    """Leave one optimizer for another and keep it, as a second training phase may do."""
    for optimizer in [torch.optim.SGD(MODEL.parameters(), lr=0.1) for _ in range(2)]:
        for _ in range(20):
            backward()
            optimizer.step()


class Clipped(torch.optim.SGD):
    """An optimizer that extends the step of another one."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
        return super().step(closure)


def extended(before: bool = True) -> None:
    """Step with an optimizer whose step and the one within are both reported by torch."""
    if before:
        torch.optim.SGD([torch.zeros(1)])
    optimizer = Clipped(MODEL.parameters(), lr=0.1)
    for number in range(STEPS):
        backward()
        optimizer.step()
        if number == 3:
            torch.optim.SGD([torch.zeros(1)])


def extended_later() -> None:
    """The same, of which torch reports the step within from step 4 on."""
    extended(before=False)


def short_trials() -> None:
    """Train with one optimizer after the other, for a few steps each."""
    for _ in range(STEPS // 2):
        optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1)
        for _ in range(2):
            backward()
            optimizer.step()


def two_scaled(scalers: int = 1) -> None:
    """Train two models; gradients overflow for the first in step 3, for the second in step 6."""
    models = MODEL[0], torch.nn.Linear(4, 2)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    scaling = [torch.amp.GradScaler("cpu") for _ in range(scalers)]
    for number in range(STEPS):
        for place, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad()
            scaler = scaling[place % scalers]
            scaler.scale(model(torch.randn(8, 4)).square().mean()).backward()
            if number == 3 * (place + 1):
                model.weight.grad.fill_(float("inf"))  # type: ignore[union-attr]
            scaler.step(optimizer)
            if place or scalers > 1:
                scaler.update()


def two_scalers() -> None:
    """Do so with a scaler for each of them."""
    two_scaled(2)


def left_out() -> None:
    """Leave out updates 3 and 6 oneself, as programs that clip by hand do."""
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1)
    scaling = torch.amp.GradScaler("cpu")
    for number in range(STEPS):
        optimizer.zero_grad()
        scaling.scale(MODEL(torch.randn(8, 4)).square().mean()).backward()
        scaling.unscale_(optimizer)
        if number not in (3, 6):
            scaling.step(optimizer)
        scaling.update()


def odd_batches() -> None:
    """Batches that hold no tensor, in kinds of objects that the probe does not know."""
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1)
    strange = [object(), {"values": 3}, None, "text", [], (), {1: {2: [3]}}, 7.5, torch.tensor(1.0)]
    for _ in DataLoader([*strange, b"x"], batch_size=None, collate_fn=lambda item: item):  # type: ignore[arg-type]
        backward()
        optimizer.step()


def images() -> None:
    """Batches whose samples differ in size, with what is in them, as for detection."""
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1)
    samples = [(torch.ones(3, 5), {"boxes": torch.ones(number % 3, 4)}) for number in range(80)]
    kept = functools.partial(zip, strict=True)
    for _ in DataLoader(samples, batch_size=8, collate_fn=lambda batch: tuple(kept(*batch))):  # type: ignore[arg-type]
        backward()
        optimizer.step()


def nested_tensors() -> None:
    """Batches as torch makes them of samples of several parts."""
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1)
    samples = [({"first": (torch.ones(3), torch.ones(4))}, number) for number in range(80)]
    for _ in DataLoader(samples, batch_size=8):  # type: ignore[arg-type]
        backward()
        optimizer.step()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
