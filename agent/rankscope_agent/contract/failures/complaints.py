"""Reads errors that a program or launcher reports in one line, without a traceback.

Loggers, log collectors and people leave tracebacks out. Such a line makes a cause likely but proves
nothing: programs survive errors that they log. An error of no known kind is returned as such, so
that it can be quoted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.failures.messages import USER, Meaning, classify, classify_exit

UNEXPLAINED = Meaning(causes.UNKNOWN, certain=False)
"""An error that matches no known message."""

STRONG = frozenset(
    {
        causes.GPU_OOM,
        causes.HOST_OOM,
        causes.KILLED,
        causes.CUDA_ERROR,
        causes.NATIVE_CRASH,
        causes.CHECKPOINT_CORRUPT,
        causes.CHECKPOINT_INCOMPATIBLE,
        causes.RENDEZVOUS,
        causes.COLLECTIVE_TIMEOUT,
        causes.NCCL_ERROR,
    }
)
"""Causes whose messages are distinctive enough to be believed without an error level."""

_NAME = r"(?:[A-Za-z_]\w{0,60}\.){0,12}[A-Z]\w{0,80}(?:Error|Exception|Interrupt)"
_RAISED = re.compile(rf"(?:Uncaught |Unhandled )?(?:exception: )?{_NAME}(?::(?: |$)|$)")
"""The last line of an exception, if it starts the line."""

_NAMED = re.compile(rf"(?:^|[\s:|\])\"'-]){_NAME}: ?")
_LOUD = re.compile(
    r"(?:^|[\s\[(|:-])(?:ERROR|FATAL|CRITICAL|SEVERE)(?:[\]):|\s-]|$)"
    r"|^\[?[EF]\d{4} \d\d:\d\d|\[[EF](?:\d{4} [\d:.]{8,20})? ?[\w/]{1,60}\.(?:cpp|cc|cu|py):\d+\]"
    r"|(?:^|: |\] |- )(?:[Ff]atal [Ee]rror|[Ee]rror|[Ff]atal): (?![-+]?\d)"
    r"|\blevel(?:name)?\"?[=:] ?\"?(?:error|fatal|critical)\b|NCCL WARN |^\s*what\(\): "
    r"|\bFailedScheduling\b|\bpthread_create failed\b|\b[Ll]oss is (?:nan|inf)\b",
)
"""A level as written by loggers, glog and compilers; NCCL's warnings are all errors, and some
messages have no level."""

_SURVIVED = re.compile(
    r"\bWARN(?:ING)?\b|^\[?W\d{4} |\[W(?:\d{4} [\d:.]{8,20})? ?[\w/]{1,60}\.(?:cpp|cc|cu|py):\d+\]"
    r"|[Ww]arning: |\bDEBUG\b|level\"?[=:] ?\"?warn"
    r"|\b(?:[Rr]etr(?:y|ies|ied|ying)|[Ii]gnor(?:e|ed|ing)|[Ss]kipp(?:ed|ing)|[Ff]alling back"
    r"|[Ff]allback|[Rr]ecover(?:ed|ing)|attempt \d{1,6} ?(?:of|/))\b|will try again"
)
"""The program continued, by its own account."""

_HARMLESS = re.compile(
    r"Attempting to register factory for plugin cu|computation_placer already registered"
    r"|Unable to register cu\w+ factory|Could not load dynamic library 'libnvinfer"
    r"|TF-TRT Warning|failed call to cuInit: UNKNOWN ERROR \(303\)"
)
"""What TensorFlow and XLA print as errors whenever they are imported along with PyTorch."""

_RANK = re.compile(r"\b[Rr]ank[ _:=#]{0,2}(\d{1,7})\b")
_WHAT = re.compile(r"^\s*what\(\): ")


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error in one line.

    Args:
        meaning: what it means; None if it matches no known message.
        rank: the rank that it names; None if it names none.
        survived: whether the program says that it continued.
    """

    meaning: Meaning | None
    rank: int | None
    survived: bool = False


def read_complaint(text: str) -> Complaint | None:
    """Read a line outside of tracebacks; return None if it reports no error."""
    if _HARMLESS.search(text):
        return None
    nccl_warns = "NCCL WARN " in text
    known = classify(text)
    strong = known.cause in STRONG
    loud = _LOUD.search(text) is not None
    raised = _RAISED.match(text) is not None
    if not (loud or raised or strong):
        return None
    named = _RANK.search(text)
    rank = int(named[1]) if named else None
    if _SURVIVED.search(text.replace("NCCL WARN ", "")):
        if not (strong or nccl_warns):
            return None
        return Complaint(replace(known, certain=False) if strong else None, rank, survived=True)
    return Complaint(_meaning(text, known, raised=raised), rank)


def _meaning(text: str, known: Meaning, *, raised: bool) -> Meaning | None:
    if known is not USER:
        return replace(known, certain=False)
    if _WHAT.match(text):
        return Meaning(causes.NATIVE_CRASH, certain=False)
    return replace(USER, certain=False) if raised or _NAMED.search(text) else None


_CODE = re.compile(
    rb"(?:[Ee]xit ?[Cc]ode|[Rr]eturn code|exited with code|exit status)"
    rb"\W{1,12}?(-?\d{1,4})\b"
)
_DIED = re.compile(rb"died with <Signals\.SIG\w{2,8}: (\d{1,2})>")
_CORE = re.compile(
    rb"^(?:\S{1,80}: line \d+: +\d+ |srun: error: \S{1,255}: tasks [\d,-]{1,400}: )?"
    rb"(?:(?P<s6>Aborted)|(?P<s7>Bus error)|"
    rb"(?P<s4>Illegal instruction)|(?P<s8>Floating point exception))\b.{0,40}(?:core dumped|$)"
    rb"|(?P<s11>!!!!!!! Segfault encountered)"
)
_ENDED = re.compile(
    rb"Worker group FAILED|Worker exit type: SYSTEM_ERROR|\bCrashLoopBackOff\b|"
    rb"Back-off restarting failed container|The actor died unexpectedly|"
    rb"A worker died or was killed while executing a task|actor died unexpectedly|"
    rb"job aborted because of|mpirun (?:has exited due to|detected that one or more)|"
    rb"Primary job +terminated normally, but|"
    rb"\bBackoffLimitExceeded\b|reached the specified backoff limit|"
    rb"^make(?:\[\d{1,4}\])?: \*\*\* "
)


_CHILD = re.compile(rb"(?:Error|Exception): (?:subprocess\.)?CalledProcessError: ")
"""A compiler or similar that a program ran: its exit code is not that of the training program."""


def read_echo(words: bytes) -> Meaning | None:
    """Read a launcher's report that some process ended; None if the line is no such report."""
    if _CHILD.search(words):
        return None
    died = _DIED.search(words)
    if died is not None:
        return replace(classify_exit(-int(died[1])), certain=False)
    core = _CORE.search(words)
    if core is not None and core.lastgroup:
        return replace(classify_exit(-int(core.lastgroup[1:])), certain=False)
    code = _CODE.search(words)
    if code is not None and int(code[1]):
        return replace(classify_exit(int(code[1])), certain=False)
    return UNEXPLAINED if _ENDED.search(words) else None
