"""Train a small model for some steps; optionally do something unkind to the ring half-way.

usage: steps.py STEPS [truncate | unlink | close | close-always | take-over | take-over-and-fork |
                       limit | limit-first | kill | hook | error | break-ring | break-hook]
"""

from __future__ import annotations

import glob
import os
import resource
import signal
import sys
from collections.abc import Callable

import torch
from torch.utils.data import DataLoader, TensorDataset

import rankscope_probe


class UserError(Exception):
    """What the job itself raises."""


def rings() -> list[str]:
    return glob.glob(os.environ["RANKSCOPE_RING_DIR"] + "/*.ring")  # noqa: PTH207


def refuse(*arguments: object, **options: object) -> None:
    raise UserError("raised on purpose")


def take_over() -> None:
    """Close all descriptors and open a file of the program's own under each of their numbers."""
    held = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    os.closerange(3, 4096)
    target = os.open(os.environ["OWN_FILE"], os.O_RDWR | os.O_CREAT, 0o600)
    for number in held:
        if number > 2 and number != target:
            os.dup2(target, number)
    os.write(target, b"precious" * 4096)


def own_files() -> set[str]:
    """Return the numbers under which the program's own file is open."""
    links = {name: "/proc/self/fd/" + name for name in os.listdir("/proc/self/fd")}  # noqa: PTH208
    own = os.environ["OWN_FILE"]
    return {name for name, link in links.items() if os.path.realpath(link) == own}


def fork_and_compare() -> None:
    """Leave a child that sees its parent's files of this program, every one."""
    before = own_files()
    child = os.fork()
    if child == 0:
        os._exit(own_files() != before)
    print("child keeps its files", os.waitpid(child, 0)[1] == 0)


def limit() -> None:
    """Let the kernel end this process when it writes beyond its first page, as at the default."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))


def mischief(kind: str, optimizer: torch.optim.Optimizer) -> None:
    acts: dict[str, Callable[[], object]] = {
        "truncate": lambda: os.truncate(rings()[0], 0),
        "unlink": lambda: os.unlink(rings()[0]),  # noqa: PTH108
        "close": lambda: os.closerange(3, 4096),
        "close-always": lambda: os.closerange(3, 4096),
        "take-over": take_over,
        "take-over-and-fork": lambda: (take_over(), fork_and_compare()),
        "limit": limit,
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "hook": lambda: optimizer.register_step_post_hook(refuse),
        "error": refuse,
        "break-hook": lambda: setattr(rankscope_probe._probe, "end_step", refuse),
    }
    if kind in acts:
        acts[kind]()


def main() -> None:
    steps, kind = int(sys.argv[1]), (sys.argv[2:] or [""])[0]
    if kind == "break-ring":
        rankscope_probe._Ring = refuse  # type: ignore[assignment, misc]
    if kind == "limit-first":
        limit()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(steps * 8, 4), torch.randn(steps * 8, 2)), 8)
    for step, (inputs, wanted) in enumerate(loader):
        if step == steps // 2 or (kind == "close-always" and step):
            mischief(kind, optimizer)
        optimizer.zero_grad()
        (model(inputs) - wanted).square().mean().backward()
        optimizer.step()
    print("weights", [round(float(value), 6) for value in model.weight.detach().flatten()])


if __name__ == "__main__":
    main()
