"""Load what extends torch, the probe among it, as the end of `import torch` does."""

from __future__ import annotations

import torch

if __name__ == "__main__":
    torch._import_device_backends()
