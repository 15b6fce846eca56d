"""Launch a job with torchrun, which is imported already; usage: as torchrun's."""

from __future__ import annotations

import sys

from torch.distributed.run import main

if __name__ == "__main__":
    main(sys.argv[1:])
