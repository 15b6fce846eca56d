"""`rankscope fabric-check --manifest`: the check in separate pods, as objects for kubectl."""

from __future__ import annotations

import argparse
import sys

import yaml

from rankscope_analyzers.command import InputError
from rankscope_analyzers.fabric import manifest

NAMES = ("image", "nodes")
"""Options without which no manifest can be made."""


def print_objects(options: argparse.Namespace, flags: list[str], seconds: float) -> None:
    """Print the objects as YAML.

    Args:
        options: of the command.
        flags: of the check, for its pods.
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
