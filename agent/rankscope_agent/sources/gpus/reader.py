"""Reads everything about one GPU per run, and remembers what it does not support."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.contract.model import Metric, Sample
from rankscope_agent.sources.gpus.call_errors import CallErrors
from rankscope_agent.sources.gpus.nvlink import NvlinkReader
from rankscope_agent.sources.gpus.nvml import (
    CLOSED_CODES,
    GONE_CODES,
    NOT_FOUND,
    NOT_READY,
    RESET_REQUIRED,
    SUCCESS,
    UNSUPPORTED_CODES,
    Device,
    Identity,
    MigInstance,
    NvmlError,
)
from rankscope_agent.sources.gpus.readings import (
    ACTIVITY_METRICS,
    BLANKS,
    CLOCK_EVENT_BITS,
    FIELDS,
    GROUPS,
    INSTEAD,
    PERCENT,
    RARE_CLOCK_EVENT_BITS,
    READINGS,
    RECOVERY_ACTIONS,
    RECOVERY_FIELD,
    Field,
    Reading,
    Value,
)

MIG_PERIOD_SECONDS = 10.0
"""Time between two checks of the partitioning, which people change manually."""

SM_ACTIVE_ID = 2  # NVML_GPM_METRIC_SM_UTIL

PASSING_CODES = frozenset({NOT_FOUND, NOT_READY, SUCCESS})
"""Answers which mean that there is currently nothing to report, and are not errors."""


class GpuReader:
    """Reads one GPU; called by one thread only.

    Args:
        device: the GPU.
        identity: of the GPU.
        errors: where failed calls are counted.
        clock: returns monotonic time in seconds.
    """

    def __init__(
        self, device: Device, identity: Identity, errors: CallErrors, clock: Callable[[], float]
    ) -> None:
        self.identity = identity
        self._device = device
        self._errors = errors
        self._clock = clock
        self._calls: tuple[Reading, ...] = (
            *READINGS,
            Reading((metrics.GPU_CLOCK_EVENT,), self._clock_events),
            Reading((metrics.GPU_NVLINKS_UP,), self._nvlinks),
            Reading(tuple(ACTIVITY_METRICS.values()), _activity),
        )
        self._mig = ""
        self._mig_due = 0.0
        self._failure: NvmlError | None = None
        self._forget()

    def _forget(self) -> None:
        """Forget what is unsupported, so that everything is requested again."""
        self._readings = list(self._calls)
        self._fields = list(FIELDS)
        self._ask_recovery = True
        self._answered: set[str] = set()
        self._refused: dict[str, str] = {}
        self._seen: set[tuple[str, tuple[str, ...]]] = set()
        self._links = NvlinkReader(self.identity.model, mig=self._mig == "enabled")
        self._links_err = False

    def read(self) -> tuple[Sample, ...]:
        """Return the GPU's samples.

        Raises:
            NvmlError: the GPU is lost, the session is over, or calls fail and none answers; other
                failures only cost their own samples.
        """
        self._failure = None
        self._look_at_mig()
        found: dict[tuple[str, tuple[str, ...]], tuple[Metric, float]] = {}
        # Fields first: they show whether links have errors, and contain every counter.
        for metric, extra, value in self._values():
            key = metric.name, extra
            if value not in BLANKS and key not in found:
                found[key] = metric, value
        if self._failure is not None and not found:
            raise NvmlError(self._failure.code, "read")
        self._answered |= {name for name, _ in found}
        if metrics.GPU_DRAM_ACTIVE.name in self._answered:
            found.pop((metrics.GPU_MEMORY_ACTIVITY.name, ()), None)
        labels = self.identity.labels
        samples = [
            Sample(metric, (*labels, *extra), value)
            for (_, extra), (metric, value) in found.items()
        ]
        return (*info_samples(self.identity, self._mig), *samples, *self._unsupported())

    def _values(self) -> Iterator[Value]:
        yield from self._take(self._field_values)
        for reading in tuple(self._readings):
            yield from self._take(partial(reading.take, self._device), reading)
        if self._mig == "enabled":
            yield from self._mig_values()

    def _take(
        self, call: Callable[[], Iterable[Value]], reading: Reading | None = None
    ) -> tuple[Value, ...]:
        """Make a call; count a failure, and remember it if it is permanent."""
        try:
            return tuple(call())
        except NvmlError as error:
            self._note(error, reading)
            if error.code == RESET_REQUIRED:
                return ((metrics.GPU_RECOVERY_ACTION, ("gpu_reset",), 1),)
            return ()

    def _note(self, error: NvmlError, reading: Reading | None) -> None:
        """Record a failure.

        Raises:
            NvmlError: the error, if no further call makes sense.
        """
        if error.code in GONE_CODES | CLOSED_CODES:
            raise error
        if error.code in UNSUPPORTED_CODES and reading is not None:
            self._readings.remove(reading)
            self._refuse(reading.metrics, error.code)
        elif error.code not in UNSUPPORTED_CODES:
            self._failure = error
            if error.code not in PASSING_CODES:
                self._errors.add(error)

    def _refuse(self, refused: Iterable[Metric], code: int) -> None:
        for metric in refused:
            self._refused[metric.name] = UNSUPPORTED_CODES[code]

    def _unsupported(self) -> Iterator[Sample]:
        partly = {GROUPS.get(name) for name in self._answered}
        missing = {
            (_reading_name(name, partly), reason)
            for name, reason in self._refused.items()
            if name not in self._answered and INSTEAD.get(name) not in self._answered
        }
        for group, reason in sorted(missing):
            yield Sample(metrics.UNSUPPORTED, (*self.identity.labels, group, reason), 1)

    def _field_values(self) -> Iterator[Value]:
        asked = tuple(self._fields)
        requests = [(field.id, field.scope) for field in asked]
        if self._ask_recovery:
            requests.append((RECOVERY_FIELD, 0))
        if not requests:
            return
        try:
            answers = self._device.fields(requests)
        except NvmlError as error:
            self._fields_refused(error.code)
            raise
        for field, answer in zip(asked, answers, strict=False):
            if answer.code == SUCCESS:
                yield from self._field(field, answer.value)
            else:
                self._field_failed(field, answer.code)
        if self._ask_recovery:
            yield from self._recovery(answers[-1].code, answers[-1].value)

    def _fields_refused(self, code: int) -> None:
        """Stop requesting fields if the driver does not support them at all."""
        if code in UNSUPPORTED_CODES:
            self._refuse([field.metric for field in self._fields], code)
            self._refuse((metrics.GPU_RECOVERY_ACTION,), code)
            self._fields, self._ask_recovery = [], False

    def _field(self, field: Field, raw: float) -> Iterator[Value]:
        key = field.metric.name, field.labels
        if raw in BLANKS:
            return
        self._answered.add(field.metric.name)
        if field.if_nonzero and not raw and key not in self._seen:
            return
        self._seen.add(key)
        if field.metric is metrics.GPU_NVLINK_ERRORS and raw:
            self._links_err = True
        yield field.metric, field.labels, raw * field.scale

    def _field_failed(self, field: Field, code: int) -> None:
        error = NvmlError(code, "fields")
        if code in UNSUPPORTED_CODES:
            self._fields.remove(field)
            self._refuse((field.metric,), code)
        else:
            self._note(error, None)

    def _recovery(self, code: int, raw: float) -> Iterator[Value]:
        if code == SUCCESS:
            action = RECOVERY_ACTIONS.get(int(raw), "other")
            yield metrics.GPU_RECOVERY_ACTION, (action,), 1
        elif code in UNSUPPORTED_CODES:
            self._ask_recovery = False
            self._refuse((metrics.GPU_RECOVERY_ACTION,), code)
        else:
            self._note(NvmlError(code, "fields"), None)

    def _clock_events(self, device: Device) -> Iterator[Value]:
        mask = device.clock_event_reasons()
        for bit, reason in CLOCK_EVENT_BITS.items():
            yield metrics.GPU_CLOCK_EVENT, (reason,), int(bool(mask & bit))
        for bit, reason in RARE_CLOCK_EVENT_BITS.items():
            key = metrics.GPU_CLOCK_EVENT.name, (reason,)
            if mask & bit:
                self._seen.add(key)
            if key in self._seen:
                yield metrics.GPU_CLOCK_EVENT, (reason,), int(bool(mask & bit))

    def _nvlinks(self, device: Device) -> Iterator[Value]:
        yield from self._links.read(device, self._clock(), erring=self._links_err)

    def _look_at_mig(self) -> None:
        """Read how the GPU is partitioned; a change also changes what it supports."""
        now = self._clock()
        if now < self._mig_due:
            return
        self._mig_due = now + MIG_PERIOD_SECONDS
        try:
            mig = "enabled" if self._device.mig_enabled() else "disabled"
        except NvmlError as error:
            self._note(error, None)
            mig = ""
        if mig != self._mig:
            self._mig = mig
            self._forget()

    def _mig_values(self) -> Iterator[Value]:
        """Read MIG devices; activity is that of the GPU instance, which several may share."""
        try:
            instances = tuple(self._device.mig_instances())
        except NvmlError as error:
            self._note(error, None)
            return
        for instance in instances:
            extra = _mig_labels(instance)
            if instance.uuid:
                yield metrics.MIG_INFO, (*extra, instance.uuid), 1
            yield metrics.MIG_MEMORY_TOTAL, extra, instance.memory_total
            yield metrics.MIG_MEMORY_USED, extra, instance.memory_used
        for number in sorted({instance.gpu_instance for instance in instances}):
            members = [at for at in instances if at.gpu_instance == number]
            yield from self._take(partial(_mig_activity, self._device, members))


def _reading_name(metric: str, partly: Collection[str | None]) -> str:
    """Return the name of what is missing: the group if all of it is missing, else the metric."""
    group = GROUPS.get(metric)
    if group is None or group in partly:
        return metric.removeprefix("rankscope_gpu_")
    return group


def _mig_labels(instance: MigInstance) -> tuple[str, str, str]:
    return str(instance.gpu_instance), str(instance.compute_instance), instance.profile


def _mig_activity(device: Device, members: Sequence[MigInstance]) -> Iterator[Value]:
    for percent in device.activity((SM_ACTIVE_ID,), members[0].gpu_instance).values():
        for instance in members:
            yield metrics.MIG_SM_ACTIVE, _mig_labels(instance), percent * PERCENT


def _activity(device: Device) -> Iterator[Value]:
    for number, percent in device.activity(tuple(ACTIVITY_METRICS), None).items():
        if 0 <= percent <= 100:
            yield ACTIVITY_METRICS[number], (), percent * PERCENT


def info_samples(identity: Identity, mig: str) -> Iterator[Sample]:
    """Return the identity of a GPU, which stays known once the agent has seen it."""
    labels = (
        *identity.labels,
        identity.vendor,
        identity.model,
        identity.serial,
        identity.driver,
        identity.vbios,
        mig,
    )
    yield Sample(metrics.GPU_INFO, labels, 1)
