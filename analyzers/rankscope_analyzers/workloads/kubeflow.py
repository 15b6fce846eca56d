"""PyTorchJob, TFJob, MPIJob, XGBoostJob, PaddleJob and JAXJob: one status for all of them.

Source: training-operator pkg/apis/kubeflow.org/v1/common_types.go, mpi-operator pkg/apis/kubeflow.
"""

from __future__ import annotations

from rankscope_analyzers.workloads import causes
from rankscope_analyzers.workloads.conditions import Conditions, holding
from rankscope_analyzers.workloads.fields import Fields, count, flag, moment, text, whole, within
from rankscope_analyzers.workloads.state import Progress, Replicas, State

_STATES: tuple[tuple[str, State], ...] = (
    ("Succeeded", "succeeded"),
    ("Failed", "failed"),
    ("Suspended", "suspended"),
    ("Restarting", "restarting"),
    ("Running", "running"),
    ("Created", "pending"),
)
"""Of several conditions that hold the first one counts: ends are never revoked, and Created stays
for good."""


def progress(found: Fields) -> Progress:
    """Return the progress of an object of the Training Operator."""
    spec, status = within(found, "spec"), within(found, "status")
    conditions = holding(status)
    state = _state(conditions, known=bool(status.get("conditions")))
    policy = within(spec, "runPolicy")
    failed = state == "failed"
    return Progress(
        state=state,
        outcome="succeeded" if state == "succeeded" else "failed" if failed else "",
        cause=causes.of_condition(conditions.get("Failed")) if failed else "",
        replicas=_replicas(spec, status),
        started=moment(status, "startTime"),
        ended=_end(status, conditions, state),
        elastic=_elastic(spec),
        suspended=flag(policy, "suspend"),
        queue=text(within(policy, "schedulingPolicy"), "queue"),
        gang=whole(within(policy, "schedulingPolicy"), "minAvailable"),
    )


def _state(conditions: Conditions, *, known: bool) -> State:
    for name, state in _STATES:
        if name in conditions:
            return state
    return "unknown" if known else "pending"


def _end(status: Fields, conditions: Conditions, state: State) -> float | None:
    """Return the end; the operator sets no completionTime if a job fails only by its pods."""
    if state not in {"succeeded", "failed"}:
        return None
    condition = conditions["Succeeded" if state == "succeeded" else "Failed"]
    return moment(status, "completionTime") or condition.since


def _replicas(spec: Fields, status: Fields) -> tuple[Replicas, ...]:
    name = next((key for key in spec if key.endswith("ReplicaSpecs")), "")
    wanted, had = within(spec, name), within(status, "replicaStatuses")
    roles = sorted({*wanted, *had})
    return tuple(
        Replicas(
            role.lower(),
            whole(within(wanted, role), "replicas") if role in wanted else None,
            *(count(within(had, role), key) for key in ("active", "succeeded", "failed")),
        )
        for role in roles
    )


def _elastic(spec: Fields) -> tuple[int, int] | None:
    policy = within(spec, "elasticPolicy")
    least, most = whole(policy, "minReplicas"), whole(policy, "maxReplicas")
    return None if least is None or most is None else (least, most)
