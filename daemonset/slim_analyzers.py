"""A step of the image's build: takes out of the analyzers' packages what no command of them uses.

`python daemonset/slim_analyzers.py FOLDER`, with the Python of the image. What is compiled there is
what a command imports as a rule: who runs one waits half as long.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

UNUSED: Mapping[str, Sequence[str]] = {
    "the asynchronous twin of Kubernetes' client, and what it alone imports": (
        "kubernetes/aio", "aiohttp", "aiohttp_retry", "aiosignal", "aiohappyeyeballs", "frozenlist",
        "multidict", "propcache", "yarl",
    ),
    "tests of libraries, and modules for these alone": (
        "pandas/tests", "websocket/tests", "numpy/**/tests", "numpy/_core/_*_tests.*.so",
        "numpy/_core/_simd.*.so",
    ),
    "what extensions are built with, and types are checked by": (
        "numpy/f2py", "numpy/_core/include", "numpy/**/*.a", "numpy/**/*.pxd", "**/*.pyi",
    ),
    "what the agent reads nodes with": ("pyroute2", "pynvml.py", "h2", "hpack", "hyperframe"),
    "colours of source code, which rich takes for these alone": ("pygments",),
    "time zones of places: all times are of UTC, or as epochs": ("tzdata",),
    "dashboards and rules, for the demonstration alone": ("rankscope_analyzers/generated",),
    "a second parser of YAML, which nothing here uses": ("yaml/_yaml.*.so",),
}  # fmt: skip
"""Files and folders by why they are not needed."""

KUBERNETES_APIS = ("CoreV1Api", "CoordinationV1Api", "CustomObjectsApi", "EventsV1Api")
KUBERNETES_MODELS = ("V1Lease", "V1LeaseSpec", "V1ObjectMeta")
"""What of Kubernetes' client is imported by name; its other APIs and models go."""

SELDOM = "kubernetes"
"""Not compiled: it takes six megabytes, and a second of those who ask a cluster."""

IMPORTS = """
import json, sys
import rankscope_analyzers.cli, rankscope_analyzers.commands.watch, pandas
from kubernetes import client, config
for name in {names!r}:
    getattr(client, name)
files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
json.dump([file for file in files if file], sys.stdout)
"""


def unused(folder: Path) -> Iterator[Path]:
    """Yield files and folders that are not used.

    Raises:
        FileNotFoundError: a package has nothing of that name any longer.
    """
    for patterns in UNUSED.values():
        for pattern in patterns:
            found = list(folder.glob(pattern))
            if not found:
                raise FileNotFoundError(f"{folder} has no {pattern}")
            yield from found


def seldom_compiled(folder: Path, needed: set[Path]) -> Iterator[Path]:
    """Yield what pip has compiled, or an import has, of modules that are seldom or never needed."""
    for path in folder.rglob("__pycache__/*"):
        source = path.parents[1] / f"{path.name.partition('.')[0]}.py"
        if source not in needed or source.is_relative_to(folder / SELDOM):
            yield path


def remove(paths: Sequence[Path]) -> None:
    """Remove files, and folders with all that is in them."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def imported(folder: Path) -> set[Path]:
    """Return the files that commands import, on a watch of a cluster; they are compiled after that.

    Raises:
        subprocess.CalledProcessError: something that they need is not there.
    """
    program = IMPORTS.format(names=(*KUBERNETES_APIS, *KUBERNETES_MODELS))
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": ""},
    )
    return {Path(name) for name in json.loads(done.stdout) if Path(name).is_relative_to(folder)}


def slim(folder: Path) -> None:
    """Take out of a folder of packages what is not used, and leave what is used compiled.

    Raises:
        FileNotFoundError: what is to go is not there: a package is another one than before.
        subprocess.CalledProcessError: a command cannot be imported, before or after that.
    """
    folder = folder.resolve()
    remove(list(unused(folder)))
    needed = imported(folder)
    client = folder / "kubernetes" / "client"
    generated = [path for part in ("api", "models") for path in (client / part).glob("*.py")]
    remove([path for path in generated if path not in needed])
    remove(list(seldom_compiled(folder, imported(folder))))


if __name__ == "__main__":
    slim(Path(sys.argv[1]))
