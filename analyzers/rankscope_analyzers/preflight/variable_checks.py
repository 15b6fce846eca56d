"""Checks of variables: NCCL's names, what it logs, and one environment on all ranks."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from rankscope_analyzers.preflight.environment import Environment, Unreadable, environment
from rankscope_analyzers.preflight.job import Job, NotApplicableError, Role, UndecidedError
from rankscope_analyzers.preflight.mpi_options import handed_on
from rankscope_analyzers.preflight.nccl_variables import FOREIGN, KNOWN, REPLACED
from rankscope_analyzers.preflight.outcome import Outcome, failed, of_ranks, passed, warned
from rankscope_analyzers.preflight.placement_terms import places

TRANSPORT = ("NCCL_", "TORCH_NCCL_", "UCX_", "FI_")
ONLY_LOGGING = re.compile(r"NCCL_(DEBUG.*|TOPO_DUMP_FILE|GRAPH_DUMP_FILE)|UCX_LOG.*|FI_LOG.*")
TUNING = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_NTHREADS", "NCCL_BUFFSIZE", "NCCL_MIN_NCHANNELS")


def _nccl_variables(job: Job, role: Role) -> Outcome:
    known = environment(job, role)
    names = [name for name in known.named("NCCL_") if not name.startswith(FOREIGN)]
    for name in names:
        near = difflib.get_close_matches(name, KNOWN - REPLACED.keys(), 1, 0.9)
        if name not in KNOWN and name not in REPLACED and near:
            seen = f"NCCL has no variable {name}, and ignores it"
            return failed(seen, "a variable that NCCL reads", f"did you mean {near[0]}?")
    for name in names:
        if name in REPLACED:
            seen = f"{name} is no longer read"
            return warned(seen, "a variable that is read", f"instead: {REPLACED[name]}")
        if name not in KNOWN:
            seen = f"no version of NCCL is known to read {name}"
            return warned(seen, "a variable that NCCL reads", "remove it, or check its spelling")
    if known.hidden:
        raise UndecidedError(known.hidden)
    if not names:
        raise NotApplicableError("no NCCL variables are set")
    return passed("1 variable, known" if len(names) == 1 else f"{len(names)} variables, all known")


def _nccl_debug(job: Job, role: Role) -> Outcome:
    role.need_gpus()
    known = environment(job, role)
    level, parts = (known.get("NCCL_DEBUG") or "").upper(), known.get("NCCL_DEBUG_SUBSYS") or ""
    expected, remedy = "NCCL_DEBUG=INFO with INIT and NET", "set NCCL_DEBUG=INFO"
    if not level:
        return warned("NCCL_DEBUG is not set: the log does not show transports", expected, remedy)
    if level not in {"INFO", "TRACE", "WARN", "VERSION"}:
        return failed(f"NCCL_DEBUG={level} is not a level", expected, remedy)
    if level in {"WARN", "VERSION"}:
        return warned(f"NCCL_DEBUG={level}", expected, remedy)
    named = {one.strip().upper() for one in parts.split(",") if one.strip()}
    if named and "ALL" not in named and not {"INIT", "NET"} <= named:
        remedy = "set NCCL_DEBUG_SUBSYS=INIT,NET, or leave it out"
        return warned(f"NCCL_DEBUG_SUBSYS={parts}", expected, remedy)
    file = known.get("NCCL_DEBUG_FILE")
    if file and not file.startswith(("/dev/stdout", "/dev/stderr", "stdout", "stderr")):
        seen = f"NCCL_DEBUG_FILE={file}: lines do not reach the pod's log"
        return warned(seen, "lines in the pod's log", "leave NCCL_DEBUG_FILE out")
    return passed(f"NCCL_DEBUG={level}")


def _transport_values(known: Environment) -> Mapping[str, str]:
    found = {}
    for name, value in known.named(*TRANSPORT).items():
        found[name] = f"({value.reason})" if isinstance(value, Unreadable) else value
    return found


def equal_environment(job: Job) -> Outcome:
    """Check that all ranks have the same transport variables."""
    ranks = job.ranks
    if len(ranks) < 2:
        if ranks:
            ranks[0].complete()
        raise NotApplicableError("all ranks come from one template")
    known = [environment(job, role) for role in ranks]
    for one in known:
        if one.hidden:
            raise UndecidedError(one.hidden)
    values = [_transport_values(one) for one in known]
    names = sorted(name for one in values for name in one)
    differing = [
        name for name in dict.fromkeys(names) if len({one.get(name) for one in values}) > 1
    ]
    if not differing:
        return passed(f"{len(set(names))} variables, equal in {len(ranks)} parts")
    name = next((one for one in differing if not ONLY_LOGGING.fullmatch(one)), differing[0])
    other = next(n for n, one in enumerate(values) if one.get(name) != values[0].get(name))
    seen = (
        f"{name} is {values[0].get(name, 'not set')!r} for {ranks[0].name}"
        f" and {values[other].get(name, 'not set')!r} for {ranks[other].name}"
    )
    conclude = warned if ONLY_LOGGING.fullmatch(name) else failed
    return conclude(seen, "one value for all ranks", "give all templates the same variables")


def mpi_environment(job: Job) -> Outcome:
    """Check that an MPI launcher passes its variables to the ranks, which do not inherit them."""
    if job.kind != "MPIJob":
        raise NotApplicableError("no MPIJob")
    if job.launcher is None:
        raise UndecidedError("the MPIJob has no launcher")
    return _handed_on(job, job.launcher)


def _handed_on(job: Job, launcher: Role) -> Outcome:
    known = environment(job, launcher)
    words = launcher.command
    handed = {name for name, _ in handed_on(words)}
    if "-genvall" in words:
        return passed("-genvall passes all variables on")
    for name in known.named(*TRANSPORT):
        if name not in handed:
            return failed(
                f"{name} is set on the launcher but not passed on: ranks start without it",
                f"-x {name} on the command line of mpirun",
                f"add -x {name}",
            )
    return _on_workers(job, known, handed)


def _on_workers(job: Job, known: Environment, handed: set[str]) -> Outcome:
    for role in job.ranks:
        for name in environment(job, role).named(*TRANSPORT):
            if name not in handed:
                return warned(
                    f"{name} is set on {role.name}: ssh sessions do not inherit it",
                    "variables passed on by mpirun",
                    f"set {name} on the launcher and add -x {name}",
                )
    if known.hidden:
        raise UndecidedError(known.hidden)
    taken = sorted(name for name in handed if name.startswith(TRANSPORT))
    if not taken:
        raise NotApplicableError("no variables of the transport are set")
    return passed("handed on: " + ", ".join(taken))


def _algorithm_first(job: Job, role: Role) -> Outcome:
    job.need_several()
    known = environment(job, role)
    tuned = [name for name in TUNING if name in known.values]
    if not tuned:
        if known.hidden:
            raise UndecidedError(known.hidden)
        raise NotApplicableError("no algorithm is tuned")
    if places(role):
        return passed(f"{', '.join(tuned)}, and the job's placement is fixed")
    role.complete()
    return warned(
        f"{tuned[0]} is set, but nothing determines where the pods run",
        "topology before tuning: NCCL chooses well if ranks are close to each other",
        "first bind the job to a zone and a rack, then measure without the variable",
    )


def _hang_detection(job: Job, role: Role) -> Outcome:
    role.need_gpus()
    known = environment(job, role)
    for name in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING"):
        if known.get(name) in {"0", "false"}:
            return failed(
                f"{name}=0: a rank that hangs stays Running forever",
                "PyTorch's watchdog left on",
                f"remove {name}",
            )
    watched = any(
        "rankscope" in str(known.values.get(name)) for name in ("PYTHONPATH", "RANKSCOPE_RING_DIR")
    )
    if watched:
        return passed("step times are recorded by the probe")
    if known.hidden:
        raise UndecidedError(known.hidden)
    return warned(
        "only the pod's phase shows whether the job works",
        "a sign of progress: Running does not prove health",
        "have steps recorded by the probe, and compare with rankscope diagnose",
    )


nccl_variables = of_ranks(_nccl_variables)
nccl_debug = of_ranks(_nccl_debug)
algorithm_first = of_ranks(_algorithm_first)
hang_detection = of_ranks(_hang_detection)
