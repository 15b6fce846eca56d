"""Check of the volume for checkpoints: it outlives the node, and all ranks have it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rankscope_analyzers.preflight.environment import Unreadable, environment
from rankscope_analyzers.preflight.job import Job, NotApplicableError, Role, UndecidedError
from rankscope_analyzers.preflight.outcome import Outcome, failed, of_ranks, passed, warned
from rankscope_analyzers.preflight.values import Object, mapping, mappings, text, texts

_OPTION = re.compile(
    r"--?(?:checkpoint|ckpt|save|output|default[-_]root)(?:[-_](?:dir|path|folder|directory|location))?"
)
_VARIABLE = re.compile(r"(?:CHECKPOINT|CKPT|SAVE|OUTPUT)_(?:DIR|PATH|FOLDER)")
_OBJECT_STORE = re.compile(r"(?:s3|gs|az|abfss?|oci|hdfs)://")

LOCAL_PROVISIONERS = (
    *("rancher.io/local-path", "kubernetes.io/no-provisioner", "openebs.io/local"),
    *("topolvm.io", "topolvm.cybozu.com", "local.csi.openebs.io", "kubernetes.io/host-path"),
)
SHARED_DRIVERS = re.compile(
    r".*(ceph|juicefs|fluid|fuse|nfs|efs|fsx|lustre|filestore|gcs|s3|weka|beegfs|gpfs|spectrumscale"
    r"|azurefile|blob).*"
)
SHARED_VOLUMES = frozenset({"nfs", "cephfs", "glusterfs", "azureFile"})
NOT_FOR_DATA = frozenset({"configMap", "secret", "projected", "downwardAPI", "emptyDir"})
"""Volumes that, unless checkpoints are known to go there, have another use."""
_LOST = "checkpoints are lost when the node is replaced"
_EXPECTED = "a volume with ReadWriteMany that all ranks mount, or an object store"
_REMEDY = "use a claim of a shared file system: Ceph, JuiceFS, Fluid, NFS, Lustre"


def _checkpoint_volume(job: Job, role: Role) -> Outcome:
    path = _path(job, role)
    if path and _OBJECT_STORE.match(path):
        return passed(path)
    mounts = mappings(role.trainer.get("volumeMounts"))
    if path is None:
        return _without_path(job, role, list(_writable(role, mounts)))
    above = [one for one in mounts if f"{path}/".startswith(f"{_place(one)}/")]
    if not above:
        role.complete()
        return failed(f"nothing is mounted at {path}: {_LOST}", _EXPECTED, _REMEDY)
    nearest = max(above, key=lambda one: len(_place(one)))
    if _read_only(role, nearest):
        seen = f"{_place(nearest) or '/'}, the volume at {path}, is mounted read-only"
        return failed(seen, _EXPECTED, "mount a volume there that can be written")
    return _volume(job, role, text(nearest.get("name")), path)


def _place(mount: Object) -> str:
    return text(mount.get("mountPath")).rstrip("/")


def _read_only(role: Role, mount: Object) -> bool:
    volume = _find(role, text(mount.get("name")))
    return any(one.get("readOnly") is True for one in (mount, *mappings(list(volume.values()))))


def _writable(role: Role, mounts: Sequence[Object]) -> Iterator[str]:
    """Yield the volumes that checkpoints may be on, as far as the manifest tells."""
    for one in mounts:
        if _place(one) != "/dev/shm" and not _read_only(role, one):  # noqa: S108
            yield text(one.get("name"))


def _path(job: Job, role: Role) -> str | None:
    """Return where checkpoints are written, None if neither options nor the manifest show it."""
    if job.settings.checkpoint_path:
        return job.settings.checkpoint_path
    for word, after in role.words():
        name, equals, value = word.partition("=")
        found = value if equals else after
        if _OPTION.fullmatch(name) and (found.startswith("/") or "://" in found):
            return found.rstrip("/") or "/"
    for name, known in environment(job, role).values.items():
        if _VARIABLE.fullmatch(name) and not isinstance(known, Unreadable) and known:
            return known.rstrip("/") or "/"
    return None


def _without_path(job: Job, role: Role, volumes: list[str]) -> Outcome:
    found = [_volume(job, role, name, f"volume {name}") for name in volumes if _is_data(role, name)]
    good = [one for one in found if one.verdict == "pass"]
    if good:
        return good[0]
    role.complete()
    if not job.several and not role.gpus:
        raise NotApplicableError("one pod without GPUs")
    if found:
        return found[0]
    raise UndecidedError("the manifest does not say where checkpoints go: give --checkpoint-path")


def _is_data(role: Role, name: str) -> bool:
    volume = _find(role, name)
    return not NOT_FOR_DATA & volume.keys()


def _find(role: Role, name: str) -> Object:
    for one in mappings(role.spec.get("volumes")):
        if text(one.get("name")) == name:
            return one
    return {}


def _volume(job: Job, role: Role, name: str, path: str) -> Outcome:
    volume = _find(role, name)
    claim = text(mapping(volume, "persistentVolumeClaim").get("claimName"))
    if claim:
        return _claim(job, claim, path)
    for kind in ("emptyDir", "hostPath"):
        if kind in volume:
            conclude = failed if job.several or kind == "emptyDir" else warned
            return conclude(f"{path} is an {kind}: {_LOST}", _EXPECTED, _REMEDY)
    if "ephemeral" in volume:
        return failed(f"{path} is an ephemeral volume, which ends with its pod", _EXPECTED, _REMEDY)
    driver = text(mapping(volume, "csi").get("driver"))
    if SHARED_VOLUMES & volume.keys() or SHARED_DRIVERS.fullmatch(driver):
        return passed(f"{path}: {driver or next(iter(SHARED_VOLUMES & volume.keys()))}")
    if driver:
        return warned(f"{path} is a volume of {driver} in the pod", _EXPECTED, _REMEDY)
    role.complete()
    raise UndecidedError(f"{path} is a volume of an unknown kind")


def _claim(job: Job, name: str, path: str) -> Outcome:
    claim = job.cluster.get("PersistentVolumeClaim", job.namespace, name)
    if claim is None:
        why = job.cluster.unknown("PersistentVolumeClaim", job.namespace, name)
        if job.cluster.lacks("PersistentVolumeClaim", job.namespace, name):
            return failed(f"{path}: claim {name!r} {why}", _EXPECTED, "create the claim")
        raise UndecidedError(f"PersistentVolumeClaim {name!r} {why}")
    local = next(_local_reasons(job, claim), "")
    if local:
        return failed(f"{path}: {local}: {_LOST}", _EXPECTED, _REMEDY)
    modes = texts(mapping(claim, "spec").get("accessModes"))
    if "ReadWriteMany" in modes:
        return passed(f"{path}: claim {name}, ReadWriteMany")
    seen = f"{path}: claim {name} is {', '.join(modes) or 'without access modes'}"
    if job.several:
        return failed(f"{seen}, and {job.pods} pods mount it", _EXPECTED, _REMEDY)
    return warned(seen, "ReadWriteMany, if the job may grow", _REMEDY)


def _local_reasons(job: Job, claim: Object) -> Iterator[str]:
    spec = mapping(claim, "spec")
    class_name = text(spec.get("storageClassName"))
    storage_class = job.cluster.get("StorageClass", "", class_name)
    provisioner = text((storage_class or {}).get("provisioner"))
    if provisioner in LOCAL_PROVISIONERS:
        yield f"storage class {class_name} uses disks of the node ({provisioner})"
    volume = job.cluster.get("PersistentVolume", "", text(spec.get("volumeName"))) or {}
    if {"local", "hostPath"} & mapping(volume, "spec").keys():
        yield f"volume {text(spec.get('volumeName'))} is on a node's disk"


checkpoint_volume = of_ranks(_checkpoint_volume)
