"""Removes credentials from environments and texts of a job before they leave the node.

Not every secret can be recognised by its form. Of an environment, only variables known to be
harmless are kept; in texts, values after a name that suggests a secret are replaced, and so are
tokens of well-known formats.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rankscope_agent.contract.private_keys import KEY_NAME, SIGN, key_lines

HIDDEN = "***"

RANK_VARIABLES = frozenset(
    (
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"),
        *("NODE_RANK", "NODE_NUM", "WORKER_RANK", "MASTER_ADDR", "MASTER_PORT"),
        *("JOB_COMPLETION_INDEX", "TF_CONFIG", "NUM_PROCESSES", "PROCESS_ID"),
        *("LWS_GROUP_SIZE", "LWS_WORKER_INDEX", "VC_TASK_INDEX", "VK_TASK_INDEX"),
        *("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "K_MPI_JOB_ROLE", "ELASTIC_JOB_NAME"),
        *("PADDLE_NNODES", "PADDLE_TRAINER_NUM", "PADDLE_TRAINER_ID", "PADDLE_JOB_ID"),
        *("DMLC_NUM_WORKER", "DMLC_TASK_ID", "RANKSCOPE_JOB_ID", "OMPI_COMM_WORLD_RANK"),
        *("RANKSCOPE_RING_DIR", "HOSTNAME"),
        *("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"),
        *("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_SIZE"),
        *("PMI_SIZE", "MPI_LOCALRANKID", "SLURM_JOB_ID", "SLURM_PROCID", "SLURM_LOCALID"),
        *("SLURM_NODEID", "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"),
        *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
        *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
        *("CUDA_DEVICE_MAX_CONNECTIONS", "PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK"),
        *("PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_MAX_RESTARTS", "PET_RDZV_ID"),
        *("OMPI_MCA_orte_set_default_slots", "I_MPI_PERHOST"),
        *("REPLICA_GROUP_ID", "NUM_REPLICA_GROUPS"),
    )
)
"""Variables in which launchers store the identity of a process."""

TRANSPORT_PREFIXES = ("NCCL_", "TORCH_NCCL_", "UCX_", "FI_")
"""Families of variables that configure how ranks communicate."""

_SECRET_NAME = re.compile(
    r"token(?!iz)|secret|passw|api[-_]?key|credential|access[-_]?key|private[-_]?key", re.IGNORECASE
)
"""Parts of option and member names that precede a secret; no tokenizer is one."""

_ONE_NAME = re.compile(r"[A-Za-z0-9_.-]*")
_NAME_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_AMOUNTS = frozenset(("max", "min", "num", "n", "total"))
_UNITS = frozenset(("per", "count", "counts", "seen"))
"""Words before and behind tokens of texts, which are counted: secrets are not."""

SECRET_VALUE = re.compile(
    r"(?:hf_|sk-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abp]-|AKIA|ASIA|eyJ)[A-Za-z0-9_\-.]{8,}"
    r"|://[^/\s:@]{0,64}:[^/\s@]{1,256}@"
)
"""Tokens with the prefixes that their issuers use, JSON web tokens, and passwords in URLs."""

_SECRET_VARIABLE = re.compile(r"TOKEN|SECRET|PASSW|KEY|CREDENTIAL", re.IGNORECASE)

_NAMED = re.compile(
    r"""(?ix)
    ([\w.-]{0,64}(?=[tspac])(?:token(?!iz)|secret|passw(?:or)?d|api[-_]?key|credential|access[-_]?key
        |private[-_]?key)[\w.-]{0,64}(?![\w.-])["']?\s{0,4}[=:]\s{0,4}
        |--?[\w-]{0,64}(?=[tspa])(?:token(?!iz)|secret|password|api[-_]?key)[\w-]{0,64}(?![\w-])\s{1,4}
        |\bauthorization["']?\s{0,4}[=:]\s{0,4}(?:\w{1,16}\s{1,4})?|\bbearer\s{1,4})
    (?:"[^"]{1,4096}"|'[^']{1,4096}'|(?!\d{1,12}(?:[\s,;)]|$))[^\s,;&"']{4,4096})
    """
)
"""A name that suggests a secret, and its value; counts, as in `tokens=4096`, are no secrets.
What it looks ahead for before and after these words rules nothing out, and halves the time."""

_KEY_BLOCK = re.compile(rf"-----BEGIN {KEY_NAME}.*", re.DOTALL)

_SMELLS = ("token", "secret", "passw", "key", "credential", "authorization", "bearer")
"""In lower case: a text without any of these cannot match `_NAMED`, and searching them takes a
fortieth of the time."""


def is_kept(name: str) -> bool:
    """Return True if an environment variable may be kept; names that suggest secrets never are."""
    if name in RANK_VARIABLES:
        return True
    return name.startswith(TRANSPORT_PREFIXES) and not _SECRET_VARIABLE.search(name)


def suggests_secret(name: str) -> bool:
    """Return True if the value of an option or member of this name may be a secret."""
    if not _SECRET_NAME.search(name):
        return False
    if not _ONE_NAME.fullmatch(name):
        return True
    words = [word.lower() for word in _NAME_WORD.findall(name)]
    counted = iter([_is_counted(words, place) for place in range(len(words))])
    rest = _NAME_WORD.sub(lambda word: "" if next(counted) else word[0], name)
    return bool(_SECRET_NAME.search(rest))


def _is_counted(words: Sequence[str], place: int) -> bool:
    """Return True for the tokens of `max_num_batched_tokens` and `tokens_per_second`."""
    if words[place] not in ("token", "tokens"):
        return False
    if not _UNITS.isdisjoint(words[place + 1 : place + 2]):
        return True
    return words[place] == "tokens" and not _AMOUNTS.isdisjoint(words[max(0, place - 3) : place])


def redacted_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return a command's arguments with those that may be secrets replaced."""
    found: list[str] = []
    hide = False
    for text in arguments:
        name, equals, _ = text.partition("=")
        if hide and not text.startswith("-"):
            found.append(HIDDEN)
        elif equals and suggests_secret(name):
            found.append(f"{name}={HIDDEN}")
        else:
            found.append(SECRET_VALUE.sub(HIDDEN, _without_keys(text)))
        hide = text.startswith("-") and not equals and suggests_secret(name)
    return tuple(found)


def redacted(text: str) -> str:
    """Return a text that stands alone with whatever looks like a credential replaced.

    Of lines that follow each other, `key_lines` tells which belong to a key.
    """
    text = _without_keys(text)  # first: of `private_key=-----BEGIN` the mark would be hidden
    if _may_name(text):
        text = _NAMED.sub(lambda match: f"{match[1]}{HIDDEN}", text)
    return SECRET_VALUE.sub(HIDDEN, text)


def _without_keys(text: str) -> str:
    if SIGN not in text:
        return text
    lines = text.split("\n")
    keys = key_lines([line.encode(errors="replace") for line in lines])
    rest = "\n".join(HIDDEN if n in keys else line for n, line in enumerate(lines))
    return _KEY_BLOCK.sub(HIDDEN, rest)


def _may_name(text: str) -> bool:
    """Return False if no name suggests a secret; non-ASCII letters may have several cases."""
    small = text.lower()
    return not text.isascii() or any(smell in small for smell in _SMELLS)
