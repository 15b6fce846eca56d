"""How many floating-point operations a GPU can do per second, by model and number type.

Dense matrix multiplication according to the vendors' data sheets; where those give numbers for
sparse matrices, these are halved here. fp32 is that of the CUDA cores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TERA = 1e12

USUAL = ("bf16", "fp16")
"""Types assumed for a job that reports none: of 16 bits, the first one that a GPU has."""


@dataclass(frozen=True, slots=True)
class Model:
    """GPUs of one kind.

    Args:
        name: words of the driver's name for them.
        tera: 10**12 operations per second, by number type.
        source: the public document with the figures.
    """

    name: str
    tera: Mapping[str, float]
    source: str


def _of_16_bits(rate: float, **others: float) -> Mapping[str, float]:
    return {"fp16": rate, "bf16": rate, **others}


_HOPPER = "resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet"
_BLACKWELL = "resources.nvidia.com/en-us-blackwell-architecture: Blackwell architecture, brief"
_GB300 = "www.nvidia.com/en-us/data-center/gb300-nvl72: of 72 GPUs"
_B300 = "www.nvidia.com/en-us/data-center/hgx: of 8 GPUs; its editions differ in fp4"
_AMPERE = "A100 data sheet, nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"

MODELS: Sequence[Model] = (
    Model("GB300", _of_16_bits(2500, tf32=1250, fp8=5000, fp32=80), _GB300),
    Model("B300", _of_16_bits(2250, tf32=1125, fp8=4500, fp32=75), _B300),
    Model("GB200", _of_16_bits(2500, tf32=1250, fp8=5000, fp4=10000, fp32=80), _BLACKWELL),
    Model("B200", _of_16_bits(2250, tf32=1125, fp8=4500, fp4=9000, fp32=75), _BLACKWELL),
    Model("B100", _of_16_bits(1750, tf32=875, fp8=3500, fp4=7000, fp32=60), _BLACKWELL),
    Model("H200 NVL", _of_16_bits(835.5, tf32=417.5, fp8=1670.5, fp32=60), "H200 data sheet"),
    Model("H200", _of_16_bits(989.5, tf32=494.5, fp8=1979, fp32=67), "H200 data sheet"),
    Model("GH200", _of_16_bits(989.5, tf32=494.5, fp8=1979, fp32=67), "GH200 data sheet"),
    Model("H100 PCIe", _of_16_bits(756.5, tf32=378, fp8=1513, fp32=51), _HOPPER),
    Model("H100 NVL", _of_16_bits(835.5, tf32=417.5, fp8=1670.5, fp32=60), _HOPPER),
    Model("H100", _of_16_bits(989.5, tf32=494.5, fp8=1979, fp32=67), _HOPPER),
    Model("H800 PCIe", _of_16_bits(756.5, tf32=378, fp8=1513, fp32=51), "H800 data sheet"),
    Model("H800", _of_16_bits(989.5, tf32=494.5, fp8=1979, fp32=67), "H800 data sheet"),
    Model("H20", _of_16_bits(148, tf32=74, fp8=296, fp32=44), "H20 data sheet"),
    Model("A100", _of_16_bits(312, tf32=156, fp32=19.5), _AMPERE),
    Model("A800", _of_16_bits(312, tf32=156, fp32=19.5), "A800 data sheet: as an A100's"),
    Model("A40", _of_16_bits(149.7, tf32=74.8, fp32=37.4), "A40 data sheet"),
    Model("A30", _of_16_bits(165, tf32=82, fp32=10.3), "A30 data sheet"),
    Model("A10", _of_16_bits(125, tf32=62.5, fp32=31.2), "A10 data sheet"),
    Model("L40S", _of_16_bits(362.05, tf32=183, fp8=733, fp32=91.6), "L40S data sheet"),
    Model("L40", _of_16_bits(181.05, tf32=90.5, fp8=362, fp32=90.5), "L40 data sheet"),
    Model("L4", _of_16_bits(121, tf32=60, fp8=242.5, fp32=30.3), "L4 data sheet"),
    Model("V100S", {"fp16": 130, "fp32": 16.4}, "V100 data sheet"),
    Model("V100 PCIE", {"fp16": 112, "fp32": 14}, "V100 data sheet"),
    Model("V100", {"fp16": 125, "fp32": 15.7}, "V100 data sheet"),
    Model("T4", {"fp16": 65, "fp32": 8.1}, "T4 data sheet"),
)
"""The first row whose words are all in a GPU's name counts."""


def peak(model: str, dtype: str = "") -> tuple[float, str] | None:
    """Return operations per second of one GPU, and the number type they refer to.

    A part of a GPU (MIG) has no peak of its own here.

    Args:
        model: the driver's name, such as "NVIDIA H100 80GB HBM3".
        dtype: the type of the job's numbers, empty if unknown.

    Returns:
        None if the table has no such GPU, or not that type.
    """
    words = re.findall(r"[a-z0-9]+", model.lower())
    if "mig" in words:
        return None
    found = next((one for one in MODELS if {*one.name.lower().split()} <= {*words}), None)
    if found is None:
        return None
    chosen = dtype or next(one for one in USUAL if one in found.tera)
    return (found.tera[chosen] * TERA, chosen) if chosen in found.tera else None
