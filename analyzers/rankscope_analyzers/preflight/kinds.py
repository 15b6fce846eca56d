"""The location of pods in each kind of job: templates, replicas, and which of them hold ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rankscope_analyzers.preflight.job import Role, replicas
from rankscope_analyzers.preflight.values import Object, mapping, mappings, number, text

WITHOUT_RANKS = frozenset(
    {"launcher", "ps", "evaluator", "dataset-initializer", "model-initializer"}
)
"""Roles that start ranks, hold parameters or fetch data, by their usual names."""

Reader = Callable[[Object], Iterator[Role]]


def _role(name: str, count: int | None, template: Object, *, has_ranks: bool = True) -> Role:
    return Role(
        name, count, mapping(template, "metadata"), mapping(template, "spec"), has_ranks=has_ranks
    )


def _replica_specs(key: str) -> Reader:
    """Return a reader of Kubeflow's jobs: a mapping of roles with their templates."""

    def read(job: Object) -> Iterator[Role]:
        for name, one in mapping(job, "spec", key).items():
            ranks = str(name).lower() not in WITHOUT_RANKS
            count = replicas(mapping(one).get("replicas"))
            yield _role(str(name), count, mapping(one, "template"), has_ranks=ranks)

    return read


def _mpi_job(job: Object) -> Iterator[Role]:
    spec = mapping(job, "spec")
    launcher_too = spec.get("runLauncherAsWorker") is True
    for role in _replica_specs("mpiReplicaSpecs")(job):
        ranks = role.has_ranks or launcher_too
        yield Role(role.name, role.replicas, role.metadata, role.spec, has_ranks=ranks)


def _job(job: Object) -> Iterator[Role]:
    spec = mapping(job, "spec")
    together = replicas(spec.get("parallelism"))
    wanted = replicas(spec.get("completions"), together)
    count = min(together, wanted) if together is not None and wanted is not None else None
    yield _role("pod", count, mapping(spec, "template"))


def _job_set(job: Object) -> Iterator[Role]:
    for one in mappings(mapping(job, "spec").get("replicatedJobs")):
        name = text(one.get("name"))
        for role in _job(mapping(one, "template")):
            jobs = replicas(one.get("replicas"))
            count = None if role.replicas is None or jobs is None else role.replicas * jobs
            annotations = mapping(one, "template", "metadata", "annotations")
            # The controller copies a Job's annotations to no pod, but placement reads them there.
            own = {**annotations, **mapping(job, "metadata", "annotations"), **role.annotations}
            metadata = {**role.metadata, "annotations": own}
            ranks = name.lower() not in WITHOUT_RANKS
            yield Role(name, count, metadata, role.spec, has_ranks=ranks)


def _volcano(job: Object) -> Iterator[Role]:
    for one in mappings(mapping(job, "spec").get("tasks")):
        name = text(one.get("name")) or "task"
        ranks = name.lower() not in {*WITHOUT_RANKS, "mpimaster"}
        yield _role(name, replicas(one.get("replicas")), mapping(one, "template"), has_ranks=ranks)


def _ray(*path: str) -> Reader:
    def read(job: Object) -> Iterator[Role]:
        cluster = mapping(job, *path)
        head = _role("head", 1, mapping(cluster, "headGroupSpec", "template"))
        yield Role("head", 1, head.metadata, head.spec, has_ranks=bool(head.gpus))
        for one in mappings(cluster.get("workerGroupSpecs")):
            groups, hosts = replicas(one.get("replicas")), replicas(one.get("numOfHosts"))
            count = None if groups is None or hosts is None else groups * hosts
            yield _role(text(one.get("groupName")) or "workers", count, mapping(one, "template"))

    return read


def _leader_worker_set(job: Object) -> Iterator[Role]:
    spec = mapping(job, "spec")
    groups = replicas(spec.get("replicas"))
    template = mapping(spec, "leaderWorkerTemplate")
    size = replicas(template.get("size"))
    workers = mapping(template, "workerTemplate")
    leader = mapping(template, "leaderTemplate")
    if groups is None or size is None:
        yield _role("worker", None, workers)
        return
    yield _role("leader", groups, leader or workers)
    if size > 1:
        yield _role("worker", groups * (size - 1), workers)


def roles_of_pod(pod: Object) -> Iterator[Role]:
    """Yield the one role of a pod."""
    name = text(mapping(pod, "metadata").get("name")) or "pod"
    status = mapping(pod, "status")
    yield Role(name, 1, mapping(pod, "metadata"), mapping(pod, "spec"), status=status)


def _train_job(job: Object) -> Iterator[Role]:
    """Yield the roles of a TrainJob without its runtime, which `runtimes.completed` adds."""
    trainer = mapping(job, "spec", "trainer")
    keys = ("image", "command", "args", "env")
    container = {key: trainer[key] for key in keys if key in trainer}
    container |= {"name": "node", "resources": mapping(trainer, "resourcesPerNode")}
    yield Role(
        "node",
        number(trainer.get("numNodes")),
        {},
        {"containers": [container]},
        missing="the runtime of the TrainJob is not known",
    )


KINDS: Mapping[tuple[str, str], tuple[str, Reader]] = {
    ("kubeflow.org", "PyTorchJob"): ("PyTorchJob", _replica_specs("pytorchReplicaSpecs")),
    ("kubeflow.org", "MPIJob"): ("MPIJob", _mpi_job),
    ("trainer.kubeflow.org", "TrainJob"): ("TrainJob", _train_job),
    ("jobset.x-k8s.io", "JobSet"): ("JobSet", _job_set),
    ("batch", "Job"): ("Job", _job),
    ("batch.volcano.sh", "Job"): ("Volcano Job", _volcano),
    ("ray.io", "RayJob"): ("RayJob", _ray("spec", "rayClusterSpec")),
    ("ray.io", "RayCluster"): ("RayCluster", _ray("spec")),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): ("LeaderWorkerSet", _leader_worker_set),
    ("", "Pod"): ("Pod", roles_of_pod),
}
"""Every kind that is read: group and kind, its name, and what yields its roles."""


def kind_of(body: Object) -> str:
    """Return the name of an object's kind, empty for kinds that are not read."""
    group, _, _ = text(body.get("apiVersion")).rpartition("/")
    return KINDS.get((group, text(body.get("kind"))), ("",))[0]
