"""Options of `rankscope fabric-check`."""

from __future__ import annotations

import argparse

from rankscope_analyzers.command import add_output


def _add_pods(parser: argparse.ArgumentParser) -> None:
    """Declare the objects that measure in separate pods."""
    group = parser.add_argument_group(
        "a job of its own", "print objects for kubectl apply -f - instead of measuring here"
    )
    group.add_argument("--manifest", choices=("job", "jobset"), help="kind of object to print")
    group.add_argument(
        "--image", help="image with torch and rankscope, such as your training image"
    )
    group.add_argument(
        "--nodes", type=int, metavar="N", help="number of pods, each on its own node"
    )
    group.add_argument(
        "--gpus", type=int, default=8, metavar="N", help="GPUs per pod (default %(default)s)"
    )
    group.add_argument(
        "--resource",
        action="append",
        default=[],
        metavar="NAME=COUNT",
        help="RDMA devices per pod, such as rdma/hca=1; repeatable",
    )
    group.add_argument(
        "--network",
        action="append",
        default=[],
        metavar="NAME",
        help="secondary network of the pods; repeatable",
    )
    group.add_argument(
        "--cpus", type=int, default=8, metavar="N", help="CPUs per pod (default %(default)s)"
    )
    group.add_argument(
        "--memory", default="32Gi", metavar="SIZE", help="memory per pod (default %(default)s)"
    )
    group.add_argument(
        "--name", default="fabric-check", help="name of the objects (default %(default)s)"
    )
    group.add_argument(
        "--pods-namespace",
        default="",
        metavar="NS",
        help="namespace of the objects (default: kubectl's)",
    )


MOST_SECONDS = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is measured, and what is expected."""
    parser.add_argument(
        "--backend",
        choices=("gloo", "nccl"),
        default="",
        help="backend to measure (default: nccl with GPUs, otherwise gloo)",
    )
    parser.add_argument(
        "--sizes",
        default="64K,1M,16M",
        metavar="SIZES",
        help="message sizes of the all-reduces, in bytes or with K, M or G (default %(default)s)",
    )
    parser.add_argument(
        "--link-size",
        default="8M",
        metavar="SIZE",
        help="message size for measuring a link (default %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=2.0,
        metavar="SECONDS",
        help="time for the all-reduces of one size (default %(default)s)",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=120.0,
        metavar="SECONDS",
        help="how long ranks wait for each other (default %(default)s)",
    )
    parser.add_argument(
        "--minimum", type=_gigabits, metavar="GBIT", help="minimum rate of a typical link in Gbit/s"
    )
    _add_pods(parser)
    add_output(parser)


def _seconds(text: str) -> float:
    return _positive(text, MOST_SECONDS, "seconds")


def _gigabits(text: str) -> float:
    return _positive(text, 1e6, "Gbit/s") * 1e9 / 8


def _positive(text: str, most: float, unit: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= most:
        raise argparse.ArgumentTypeError(f"expected {unit} above 0, at most {most:g}, not {text!r}")
    return value
