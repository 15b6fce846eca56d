"""`rankscope fabric-check --manifest`: the check in pods of its own, as objects for kubectl."""

from __future__ import annotations

import argparse
import sys

import yaml

from rankscope_analyzers.command import InputError
from rankscope_analyzers.fabric import manifest

NAMES = ("image", "nodes")
"""Options without which no manifest can be made."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the pods."""
    group = parser.add_argument_group(
        "pods of its own", "print objects for kubectl apply -f - instead of measuring here"
    )
    group.add_argument("--manifest", choices=("job", "jobset"), help="the object to make pods by")
    group.add_argument("--image", help="with torch and rankscope in it, as your training image")
    group.add_argument("--nodes", type=int, metavar="N", help="pods, each on a node of its own")
    group.add_argument(
        "--gpus", type=int, default=8, metavar="N", help="of each pod (default %(default)s)"
    )
    group.add_argument(
        "--resource",
        action="append",
        default=[],
        metavar="NAME=COUNT",
        help="RDMA devices of each pod, such as rdma/hca=1; may be given several times",
    )
    group.add_argument(
        "--network",
        action="append",
        default=[],
        metavar="NAME",
        help="a secondary network of each pod; may be given several times",
    )
    group.add_argument("--cpus", type=int, default=8, help="of each pod (default %(default)s)")
    group.add_argument("--memory", default="32Gi", help="of each pod (default %(default)s)")
    group.add_argument(
        "--name", default="fabric-check", help="of all objects (default %(default)s)"
    )
    group.add_argument(
        "--pods-namespace", default="", metavar="NS", help="of all objects (default: kubectl's)"
    )


def print_objects(options: argparse.Namespace, flags: list[str], seconds: float) -> None:
    """Print the objects as YAML.

    Args:
        options: of the command.
        flags: of the check, as its pods are to get them.
        seconds: that it may take.

    Raises:
        InputError: an option is missing, or cannot be used.
    """
    missing = [f"--{name}" for name in NAMES if not getattr(options, name)]
    if missing:
        raise InputError(f"--manifest takes {' and '.join(missing)} as well")
    if options.gpus < 0 or options.cpus < 1:
        raise InputError("a pod has 0 GPUs or more, and a CPU at least")
    pods = manifest.Pods(
        kind=options.manifest,
        name=options.name,
        namespace=options.pods_namespace,
        image=options.image,
        nodes=options.nodes,
        gpus=options.gpus,
        resources=options.resource,
        networks=options.network,
        cpus=options.cpus,
        memory=options.memory,
        flags=flags,
        seconds=seconds,
    )
    yaml.dump_all(manifest.objects(pods), sys.stdout, _Plain, sort_keys=False)


class _Plain(yaml.SafeDumper):
    """Writes equal parts out each time: readers of the manifest need not know anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True
