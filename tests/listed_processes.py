"""A /proc with processes as an agent reads them: environments, control groups and libraries."""

from __future__ import annotations

from pathlib import Path

from pod_json import uid

NOW = 1_800_000_000
LIBRARIES = "/opt/venv/lib/python3.11/site-packages"
PYTHON = "/usr/bin/python3.11"
TORCH = f"{LIBRARIES}/torch/lib/libtorch_cpu.so"
PROBE = "/opt/rankscope/probe/rankscope_probe.py"
JAX = f"{LIBRARIES}/jaxlib/libjax_common.so"
IN_POD = f"0::/kubepods/pod{uid(1)}/{'4f' * 32}"


class Proc:
    """A /proc with processes in it."""

    def __init__(self, path: Path) -> None:
        self.path = path / "proc"
        self.path.mkdir()

    def add(self, pid, cgroup=IN_POD, **environ):
        folder = self.path / str(pid)
        folder.mkdir(exist_ok=True)
        text = "\0".join(f"{key}={value}" for key, value in environ.items())
        (folder / "environ").write_text(text)
        (folder / "cgroup").write_text(cgroup)
        return folder

    def map(self, pid, *libraries):
        """Have a process started at NOW, with these files mapped."""
        (self.path / "stat").write_text(f"btime {NOW}\n")
        (self.path / str(pid) / "stat").write_text(f"{pid} (python) S {'0 ' * 18}0 0\n")
        lines = (f"7f12a0000000-7f12a0001000 r-xp 0 fe:00 12 {path}\n" for path in libraries)
        (self.path / str(pid) / "maps").write_text("".join(lines))
