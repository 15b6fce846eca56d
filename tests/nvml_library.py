"""What libnvidia-ml.so.1 would answer, behind the real nvidia-ml-py: by function, in the C form.

nvidia-ml-py calls functions of the library it has loaded by their names in C, with ctypes
arguments. This class stands in the library's place, so that the structures, versions and errors of
the real module are passed through.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pynvml

FIRST_HANDLE = 0x1000
FIRST_MIG_HANDLE = 0x8000
EVENT_SET = 0x77

Answer = Any
"""A tuple of values for the pointers that a call is given, a mapping for the members of a
structure, bytes for a text, a function of the call's arguments that returns a code, or `Code`."""


class Code(int):
    """A return code other than success."""


def point(reference: Any, address: int) -> int:
    """Write a handle to where a call wants it."""
    ctypes.cast(reference, ctypes.POINTER(ctypes.c_void_p))[0] = address
    return pynvml.NVML_SUCCESS


def address_of(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def number(argument: Any) -> int:
    return int(getattr(argument, "value", argument))


def fields_of(values: Mapping[tuple[int, int], Any]) -> Callable[..., int]:
    """Answer nvmlDeviceGetFieldValues: a number by (id, scope), or a `Code`."""

    def call(_: Any, count: Any, array: Any) -> int:
        for at in array._obj[: number(count)]:
            value = values.get((at.fieldId, at.scopeId), Code(pynvml.NVML_ERROR_NOT_SUPPORTED))
            at.nvmlReturn = value if isinstance(value, Code) else pynvml.NVML_SUCCESS
            if isinstance(value, float):
                at.valueType, at.value.dVal = pynvml.NVML_VALUE_TYPE_DOUBLE, value
            elif not isinstance(value, Code) and value < 0:
                at.valueType, at.value.sllVal = pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG, value
            elif not isinstance(value, Code) and value < 2**32:
                at.valueType, at.value.uiVal = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, value
            elif not isinstance(value, Code):
                at.valueType, at.value.ullVal = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, value
        return pynvml.NVML_SUCCESS

    return call


class CLibrary:
    """A loaded library with GPUs; a function that no GPU has an answer for does not exist in it.

    Args:
        gpus: answers of each GPU, by function.
        system: answers of functions that are not about a GPU.
    """

    def __init__(self, gpus: list[dict[str, Answer]], system: Mapping[str, Answer]) -> None:
        self.gpus = gpus
        self.system = {
            "nvmlInitWithFlags": lambda _: pynvml.NVML_SUCCESS,
            "nvmlShutdown": lambda: pynvml.NVML_SUCCESS,
            "nvmlSystemGetDriverVersion": b"590.48.01",
            "nvmlDeviceGetCount_v2": lambda count: self._count(count),
            "nvmlDeviceGetHandleByIndex_v2": lambda index, handle: self._handle(index, handle),
            **system,
        }
        self.calls: list[str] = []

    def _count(self, count: Any) -> int:
        count._obj.value = len(self.gpus)
        return pynvml.NVML_SUCCESS

    def _handle(self, index: Any, handle: Any) -> int:
        answer = self.gpus[number(index)].get("nvmlDeviceGetHandleByIndex_v2", 0)
        return int(answer) or point(handle, FIRST_HANDLE + number(index))

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name not in self.system and not any(name in gpu for gpu in self.gpus):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name in self.system:
                return _give(self.system[name], arguments)
            gpu = self.gpus[(address_of(arguments[0]) - FIRST_HANDLE) % FIRST_HANDLE]
            missing = Code(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return _give(gpu.get(name, missing), arguments[1:], arguments)

        return call


def _give(answer: Answer, arguments: tuple[Any, ...], whole: tuple[Any, ...] = ()) -> int:
    if isinstance(answer, Code):
        return int(answer)
    if callable(answer):
        return int(answer(*(whole or arguments)))
    if isinstance(answer, bytes):
        arguments[0].value = answer
        return pynvml.NVML_SUCCESS
    pointers = [at._obj for at in arguments if hasattr(at, "_obj")]
    if isinstance(answer, Mapping):
        for member, value in answer.items():
            setattr(pointers[0], member, value)
    else:
        for pointer, value in zip(pointers, answer, strict=True):
            pointer.value = value
    return pynvml.NVML_SUCCESS


@contextlib.contextmanager
def loaded(library: CLibrary | None) -> Iterator[Any]:
    """Give nvidia-ml-py with this library loaded; with None it has to find one itself."""
    kept, cache = pynvml.nvmlLib, dict(pynvml._nvmlGetFunctionPointer_cache)
    pynvml._nvmlGetFunctionPointer_cache.clear()
    pynvml.nvmlLib = library
    try:
        yield pynvml
    finally:
        pynvml.nvmlLib = kept
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml._nvmlGetFunctionPointer_cache.update(cache)


MEBI = 1 << 20


def clocks(sm: int, memory: int) -> Callable[..., int]:
    """Answer a call that gives the clock of a domain in MHz."""

    def call(_: Any, domain: Any, value: Any) -> int:
        value._obj.value = {1: sm, 2: memory}[number(domain)]
        return pynvml.NVML_SUCCESS

    return call


def links(up: int) -> Callable[..., int]:
    """Answer nvmlDeviceGetNvLinkState of a GPU whose links are up."""

    def call(_: Any, link: Any, active: Any) -> int:
        if number(link) >= up:
            return pynvml.NVML_ERROR_INVALID_ARGUMENT
        active._obj.value = 1
        return pynvml.NVML_SUCCESS

    return call


def hopper(index: int) -> dict[str, Answer]:
    """Return the answers of a GPU of Hopper's generation under load."""
    allocated = iter(range(0x100 * (index + 1), 0x100 * (index + 2)))

    def metrics_get(request: Any) -> int:
        for at in request._obj.metrics[: request._obj.numMetrics]:
            at.nvmlReturn, at.value = pynvml.NVML_SUCCESS, {2: 88.0, 5: 61.5, 10: 40.0}[at.metricId]
        return pynvml.NVML_SUCCESS

    return {
        "nvmlDeviceGetUUID": f"GPU-{index:08x}-0000-0000-0000-000000000000".encode(),
        "nvmlDeviceGetPciInfo_v3": {"busId": f"0000000{index}:3B:00.0".encode()},
        "nvmlDeviceGetName": b"NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetSerial": b"1654925000001",
        "nvmlDeviceGetVbiosVersion": b"96.00.A5.00.01",
        "nvmlDeviceGetUtilizationRates": {"gpu": 97, "memory": 41},
        "nvmlDeviceGetMemoryInfo_v2": {
            "total": 81559 * MEBI,
            "used": 70000 * MEBI,
            "reserved": 479 * MEBI,
        },
        "nvmlDeviceGetClockInfo": clocks(1755, 2619),
        "nvmlDeviceGetMaxClockInfo": clocks(1980, 2619),
        "nvmlDeviceGetCurrentClocksEventReasons": (4 | 64,),
        "nvmlDeviceGetPowerUsage": (698_500,),
        "nvmlDeviceGetEnforcedPowerLimit": (700_000,),
        "nvmlDeviceGetTemperature": lambda _, __, value: _store(value, 71),
        "nvmlDeviceGetMarginTemperature": {"marginTemperature": -3},
        "nvmlDeviceGetSramEccErrorStatus": {"bThresholdExceeded": 1},
        "nvmlDeviceGetCurrPcieLinkGeneration": (5,),
        "nvmlDeviceGetCurrPcieLinkWidth": (8,),
        "nvmlDeviceGetMaxPcieLinkGeneration": (5,),
        "nvmlDeviceGetMaxPcieLinkWidth": (16,),
        "nvmlDeviceGetNvLinkState": links(18),
        "nvmlDeviceGetNvLinkErrorCounter": (0,),
        "nvmlDeviceGetGpuFabricInfoV": {"state": 3, "status": 0, "healthMask": 1 | 2 << 4},
        "nvmlDeviceGetMigMode": (0, 0),
        "nvmlGpmQueryDeviceSupport": {"isSupportedDevice": 1},
        "nvmlGpmSampleGet": lambda *_: pynvml.NVML_SUCCESS,
        "nvmlGpmSampleAlloc": lambda sample: point(sample, next(allocated)),
        "nvmlGpmSampleFree": lambda _: pynvml.NVML_SUCCESS,
        "nvmlGpmMetricsGet": metrics_get,
        "nvmlDeviceGetFieldValues": fields_of(
            {
                (74, 0): 12_500_000_000,  # ns
                (270, 0): 3_000_000_000,
                (83, 0): 2**40,  # mJ
                (82, 0): 78,
                (189, 0): 700_000,
                (6, 0): 2,
                (94, 0): 2**32 - 1,  # a register that could not be read
                (138, pynvml.UINT_MAX if hasattr(pynvml, "UINT_MAX") else 2**32 - 1): 1000,  # KiB
                (230, 0): 2,
                (38, 0): 3,
            }
        ),
    }


def _store(pointer: Any, value: int) -> int:
    pointer._obj.value = value
    return pynvml.NVML_SUCCESS


GPM_CALLS = ("nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmMetricsGet")
"""Calls about activity that are not given a GPU's handle; they stand with the system's."""


def node(count: int, system: Mapping[str, Answer] | None = None) -> CLibrary:
    """Return a library of some GPUs of Hopper's generation."""
    gpus = [hopper(index) for index in range(count)]
    shared = {name: gpus[0][name] for name in GPM_CALLS}
    for gpu in gpus:
        for name in GPM_CALLS:
            del gpu[name]
    return CLibrary(gpus, {**shared, **(system or {})})
