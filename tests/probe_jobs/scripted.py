"""Have TorchScript compile functions that call what the probe wraps, and print what they return."""

from __future__ import annotations

import sys

import torch


def squares(values: torch.Tensor) -> torch.Tensor:
    result = (values * values).sum()
    torch.autograd.backward([result])
    return result


def saved(values: torch.Tensor, path: str) -> torch.Tensor:
    torch.save(values, path)
    return values


def main() -> None:
    values = torch.ones(2, requires_grad=True)
    torch.jit.script(squares)(values)
    assert values.grad is not None
    torch.jit.script(saved)(torch.ones(2), sys.argv[1])
    print(values.grad.tolist())


if __name__ == "__main__":
    main()
