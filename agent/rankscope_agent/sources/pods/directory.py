"""The last known pods of this node, for any thread; keyed by uid, because names are reused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rankscope_agent.contract.job_names import JobNameError, PodJob, namespace_of, within
from rankscope_agent.contract.model import RankIdentity
from rankscope_agent.sources.pods.gpu_order import gpu_of_rank
from rankscope_agent.sources.pods.job_naming import job_of_pod
from rankscope_agent.sources.pods.job_owners import JobOwners, OwnedFile
from rankscope_agent.sources.pods.lifecycles import JobLife, Lifecycles
from rankscope_agent.sources.pods.log_directories import PodIdentity
from rankscope_agent.sources.pods.membership import Membership
from rankscope_agent.sources.pods.memberships import Memberships
from rankscope_agent.sources.pods.placement_view import PlacementView
from rankscope_agent.sources.pods.probed import Probed
from rankscope_agent.sources.pods.rank_location import RankLocation, only_container, started
from rankscope_agent.sources.pods.records import Pod
from rankscope_agent.sources.pods.training_pods import is_training

MAX_PODS = 4096
"""Pods of the node that are kept, including ended ones: kubelets run 110 by default."""

PENDING_SECONDS = 60.0
"""How long names are waited for: the reflector's start is spread over 30 s, and one or two initial
failures are made up for within a minute."""

MAX_AWAITED = 1024
"""Unknown pods whose lookup time is remembered; further ones are not waited for."""


def _nobody(_uid: str) -> PodIdentity | None:
    return None


class PodDirectory:
    """The API server's answers; `expect` means that there is an API server to query.

    All methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self._hashes: dict[str, str] = {}
        self._members = Memberships()
        self._expected_since: float | None = None
        self._synced = threading.Event()
        self._contact_unix_seconds: float | None = None
        self._left_out: set[str] = set()
        self._changes = 0
        self._view = PlacementView()
        self._probed = Probed()
        self._awaited: dict[str, float] = {}
        self._fallback: Callable[[str], PodIdentity | None] = _nobody
        self._lives = Lifecycles()
        self._owners = JobOwners(Path("/proc"))

    def fall_back_on(self, names: Callable[[str], PodIdentity | None]) -> None:
        """Use another source of pod names for pods that the API server does not list."""
        self._fallback = names

    def look_for_owners(self, procfs: Path) -> None:
        """Set the procfs of the node's processes, which show the owners of jobs outside of pods."""
        self._owners = JobOwners(procfs)

    def expect(self) -> None:
        """Announce that pods will arrive: until then, callers that need them may wait.

        The first announcement counts.
        """
        with self._lock:
            if self._expected_since is None:
                self._expected_since = time.monotonic()

    @property
    def pending(self) -> bool:
        """Return True if pods are still to come and not late yet (`PENDING_SECONDS`).

        Whatever gives a job its name may wait for this; waiting any longer would show nothing at
        all on a node that is cut off from its API server.
        """
        with self._lock:
            since = self._expected_since
        if since is None or self._synced.is_set():
            return False
        return time.monotonic() - since < PENDING_SECONDS

    def wait(self, seconds: float) -> None:
        """Wait for the first list, if one is expected."""
        if self.pending:
            self._synced.wait(seconds)

    @property
    def contact_unix_seconds(self) -> float | None:
        """Return when the server last sent anything, bookmarks included; None before that."""
        with self._lock:
            return self._contact_unix_seconds

    @property
    def changes(self) -> int:
        """A number that changes with the known pods, and with the ranks that have a probe."""
        with self._lock:
            return self._changes

    @property
    def dropped(self) -> int:
        """Number of pods left out because there are too many; `MAX_PODS` at most."""
        with self._lock:
            return len(self._left_out)

    def replace(
        self, pods: Sequence[Pod], now_unix_seconds: float, left_out: Iterable[str] = ()
    ) -> None:
        """Store a list, complete but for these pods beyond `MAX_PODS`, by UID."""
        with self._lock:
            self._changes += 1
            for pod in sorted(pods, key=lambda pod: pod.created_unix_seconds):
                self._live(pod, now_unix_seconds)
            gone = set(self._pods)
            self._pods = {pod.uid: pod for pod in pods}
            for uid in gone - self._pods.keys():
                self._lives.leave(uid)
            self._hashes = {h: pod.uid for pod in self._pods.values() if (h := _config_hash(pod))}
            self._members.keep(self._pods)
            self._left_out = set(left_out)
            self._synced.set()
            self._contact_unix_seconds = now_unix_seconds

    def put(self, pod: Pod, now_unix_seconds: float) -> None:
        """Store a pod that is new or has changed."""
        with self._lock:
            self._contact_unix_seconds = now_unix_seconds
            self._changes += 1
            if pod.uid not in self._pods and len(self._pods) >= MAX_PODS:
                if len(self._left_out) < MAX_PODS:
                    self._left_out.add(pod.uid)
                return
            self._left_out.discard(pod.uid)
            self._live(pod, now_unix_seconds)
            self._pods[pod.uid] = pod
            if mirrored := _config_hash(pod):
                self._hashes[mirrored] = pod.uid

    def remove(self, uid: str, now_unix_seconds: float) -> None:
        """Remove a pod that is gone."""
        with self._lock:
            self._contact_unix_seconds = now_unix_seconds
            self._changes += 1
            gone = self._pods.pop(uid, None)
            self._members.forget(uid)
            self._left_out.discard(uid)
            self._lives.leave(uid)
            if gone and (mirrored := _config_hash(gone)):
                self._hashes.pop(mirrored, None)

    def _live(self, pod: Pod, now_unix_seconds: float) -> None:
        """Record what a new version of a pod says about its job; the lock is held."""
        member = self._members.take(pod)
        job = job_of_pod(pod, member)
        if member is None or job is None:
            return
        # Claimed devices are not part of any limit.
        if is_training(pod, member) or any(h.pod_uid == pod.uid for h in self._view.devices):
            self._lives.take(
                job,
                self._pods.get(pod.uid),
                pod,
                member,
                counted=self._synced.is_set(),
                now_unix_seconds=now_unix_seconds,
            )

    def lives(self, present: frozenset[str], now_unix_seconds: float) -> Mapping[str, JobLife]:
        """Return what happened to jobs, given the jobs that have training pods now."""
        with self._lock:
            self._lives.settle(present, now_unix_seconds)
            return self._lives.jobs()

    @property
    def histories_dropped(self) -> int:
        """Number of running jobs without a history, because there are too many."""
        with self._lock:
            return self._lives.left_out

    def looping(self, now_unix_seconds: float) -> Mapping[str, str]:
        """Return the pods in a crash loop, by UID, with kubectl's name for it."""
        with self._lock:
            return self._lives.looping(now_unix_seconds)

    def newest_failure(self, job: str) -> float:
        """Return the Unix time of a job's newest failure or preemption on this node; 0 if none."""
        with self._lock:
            return self._lives.newest_failure(job)

    def note_contact(self, now_unix_seconds: float) -> None:
        """Record contact with the server without news."""
        with self._lock:
            self._contact_unix_seconds = now_unix_seconds

    def pods(self) -> Sequence[Pod]:
        """Return all pods, oldest first."""
        with self._lock:
            return sorted(self._pods.values(), key=lambda p: (p.created_unix_seconds, p.uid))

    def find(self, uid: str) -> Pod | None:
        """Return a pod by its uid, or by the configuration hash in the cgroup of a static pod."""
        with self._lock:
            return self._pods.get(uid) or self._pods.get(self._hashes.get(uid, ""))

    def has_ended(self, uid: str) -> bool:
        """Return True for a pod that is known and has ended; its logs may stay for weeks."""
        pod = self.find(uid) if uid else None
        return pod is not None and pod.ended

    def named(self) -> Mapping[tuple[str, str], Pod]:
        """Return pods by (namespace, name); of several with one name the one that has not ended.

        A name is reused as soon as its pod is gone, and the kubelet's answers contain no uid.
        """
        return {
            (pod.namespace, pod.name): pod
            for pod in sorted(self.pods(), key=lambda pod: not (pod.ended or pod.deleting))
        }

    def member(self, pod: Pod) -> Membership | None:
        """Return a pod's membership in its job; None also if it cannot be read."""
        with self._lock:
            return self._members.of(pod)

    def membership_problem(self, pod: Pod) -> str:
        """Return why a pod's membership cannot be read; empty if it can."""
        with self._lock:
            return self._members.problem(pod)

    def job_of(self, pod_uid: str) -> str | None:
        """Return the job of a pod; None if the pod is unknown or belongs to none."""
        pod = self.find(pod_uid)
        return None if pod is None else job_of_pod(pod, self.member(pod))

    def training_job_of(self, pod: Pod) -> str:
        """Return the job of a training pod; empty for other pods."""
        member = self.member(pod)
        held = any(one.pod_uid == pod.uid for one in self.view.devices)
        trains = member is not None and (held or is_training(pod, member))
        return (job_of_pod(pod, member) or "") if trains else ""

    def namespace_of_pod(self, pod_uid: str) -> str:
        """Return the namespace of a pod; empty if unknown."""
        known = self.find(pod_uid) or self._fallback(pod_uid)
        return known.namespace if known else ""

    def of_pod(self, pod_uid: str, stated: str) -> PodJob | None:
        """Return the job of a pod whose processes call it `stated`; None if the pod is unknown.

        What the processes say only counts if Kubernetes knows of no job, and as a name within the
        pod's namespace. A pod that the API server has not listed yet is waited for; if the server
        stays silent, the directories of its logs show the namespace.

        Raises:
            JobNameError: the pod may not use this name.
        """
        pod = self.find(pod_uid)
        if pod is not None:
            known = self.job_of(pod_uid)
            return PodJob(known or within(pod.namespace, stated), pod.namespace)
        if self._awaits(pod_uid):
            return None
        name = self._fallback(pod_uid)
        return PodJob(within(name.namespace, stated), name.namespace) if name else None

    def check_outside(self, pod_uid: str, stated: str, file: OwnedFile | None = None) -> None:
        """Reject claims that a process outside of pods may not make on a node with pods.

        Raises:
            JobNameError: it claims a pod, a job in the namespace of a pod, or another user's job.
        """
        with self._lock:
            expected = self._expected_since is not None
            namespaces = {pod.namespace for pod in self._pods.values()}
        if pod_uid and (expected or namespaces):
            raise JobNameError("namespace", f"claims pod {pod_uid} from outside its volume")
        if namespace_of(stated) in namespaces:
            raise JobNameError("namespace", f"job {stated} belongs to pods, and this is none")
        if file is not None:
            self._owners.check(stated, file)

    def check_process(self, stated: str, user: int, slurm_job: str) -> None:
        """Reject claims that a user's process outside of pods may not make.

        Args:
            stated: its name for its job.
            user: the user that it runs as.
            slurm_job: the job that Slurm has put it into; usually empty.

        Raises:
            JobNameError: it claims a job of pods, or another user's job.
        """
        self.check_outside("", stated)
        self._owners.check_process(stated, user, slurm_job)

    def is_locked_by_other(self, file: OwnedFile) -> bool:
        """Return True if another user's process holds the lock of a ring outside of pods."""
        return self._owners.is_locked_by_other(file)

    def _awaits(self, uid: str) -> bool:
        """Return True if the API server may still list a pod, for which it has a minute."""
        now = time.monotonic()
        with self._lock:
            if self._expected_since is None or not self._synced.is_set():
                return False
            if uid not in self._awaited and len(self._awaited) >= MAX_AWAITED:
                self._awaited.clear()
            return now - self._awaited.setdefault(uid, now) < PENDING_SECONDS

    def publish(self, view: PlacementView) -> None:
        """Store what the pods collector found out about devices and processes."""
        with self._lock:
            self._view = view

    @property
    def view(self) -> PlacementView:
        """Devices and processes as last found by the pods collector."""
        with self._lock:
            return self._view

    def gpus_of(self, pod_uid: str) -> frozenset[str] | None:
        """Return the UUIDs of a pod's GPUs, including shared ones; None if none is known."""
        held = frozenset(
            one.uuid for one in self.view.devices if one.pod_uid == pod_uid and one.uuid
        )
        return held or None

    def pod_of_rank_process(self, pid: int) -> str:
        """Return the UID of the pod of a process last seen as a rank; empty if it was none."""
        found = (one for one in self.view.processes if one.pid == pid)
        return next((one.placement.pod_uid for one in found), "")

    def note_probed(self, probed: Probed) -> None:
        """Store what probes announce."""
        with self._lock:
            self._changes += probed != self._probed
            self._probed = probed

    @property
    def probed(self) -> Probed:
        """What probes announce."""
        with self._lock:
            return self._probed

    def rank_location(self, rank: RankIdentity) -> RankLocation:
        """Return in which pod and on which GPU a probed rank runs; unknown parts are empty."""
        pod = self.find(rank.pod_uid) if rank.pod_uid else None
        if pod is None:
            taken = {device.uuid for device in self.view.devices}
            free = (gpu.uuid for gpu in self.view.gpus if gpu.uuid not in taken)
            held = () if rank.pod_uid else tuple(free)
            name = (self._fallback(rank.pod_uid) if rank.pod_uid else None) or PodIdentity("", "")
            uuid = self._gpu(rank, held)
            return RankLocation(pod_namespace=name.namespace, pod_name=name.name, uuid=uuid)
        container = only_container(pod)
        held = tuple(self.view.gpus_of(pod.uid, container or None))
        return RankLocation(
            pod_namespace=pod.namespace,
            pod_name=pod.name,
            container_name=container,
            uuid=self._gpu(rank, held),
            pod_created=pod.created_unix_seconds or None,
            container_started=started(pod, container),
        )

    def _gpu(self, rank: RankIdentity, held: Sequence[str]) -> str:
        size, gpus = rank.local_world_size, self.view.gpus
        return gpu_of_rank(rank.local_rank, size, held, gpus, rank.gpu_uuid)


def _config_hash(pod: Pod) -> str:
    return pod.annotations.get("kubernetes.io/config.hash", "")
