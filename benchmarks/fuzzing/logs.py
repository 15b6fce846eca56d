"""Logs of pods and of the kernel, which anybody in a pod can write."""

from __future__ import annotations

import json
import math
import struct
import time
from collections.abc import Sequence

from benchmarks.fuzzing.target import Target, promise, stored

from failure_logs import ONE_LINE
from kernel_text import recovery, stamped, xid
from nccl_job_text import edge, info, start
from rankscope_agent.contract import redaction, thread_stacks
from rankscope_agent.contract.failures import causes, error_files
from rankscope_agent.contract.failures.log import FailureLog
from rankscope_agent.contract.failures.signs import FailureSigns
from rankscope_agent.contract.failures.verdict import decide
from rankscope_agent.contract.flight_dump import MAX_FRAMES
from rankscope_agent.contract.kernel.log import KernelLog
from rankscope_agent.contract.kernel.vocabulary import ACTIONS, CAUSES
from rankscope_agent.contract.log_text import prefixes
from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_agent.contract.log_text.learned_prefixes import LearnedPrefixes
from rankscope_agent.contract.nccl.facts import Limits
from rankscope_agent.contract.nccl.parser import NcclLog
from rankscope_agent.contract.nccl.verdict import judge
from rankscope_agent.sources.kernel_log import journal, reboots, records
from rankscope_agent.sources.kernel_log.journal import JournalError, JournalFile
from rankscope_agent.sources.nccl_log.state import from_json, to_json
from rankscope_agent.sources.nccl_log.step_lines.parser import StepLog
from rankscope_analyzers.logs import kernel_report, nccl_report
from rankscope_analyzers.logs.hard_wraps import unwrap
from rankscope_analyzers.logs.merged_logs import merged
from rankscope_analyzers.logs.nccl_findings import findings
from rankscope_analyzers.logs.pasted_text import plain
from rankscope_analyzers.logs.watchdog_suspects import suspects

LIMITS = Limits(members=20, threads=20, edges=50, warning_codes=5)
MOST_SEEN = 30
BOOT_ID = bytes(range(100, 116))

CRI = "2026-11-21T02:14:00.1Z stdout {} {}\n"
MEGATRON = (
    " [2026-11-21 10:00:00] iteration       20/     100 | consumed samples:          160 |"
    " elapsed time per iteration (ms): 412.3 | learning rate: 1.000E-04 | global batch size:     8"
    " | lm loss: 2.345678E+00 | loss scale: 1.0 | grad norm: 1.234 |\n"
)
HUGGING_FACE = "{'loss': 2.3456, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.03}\n"
BAR = " 30%|███       | 30/100 [00:12<00:28,  2.50it/s, loss=2.31]\r"
DEEPSPEED = (
    "[2026-11-21 10:00:00,123] [INFO] [timer.py:260:stop] epoch=0/micro_step=100/global_step=100,"
    " RunningAvgSamplesPerSec=31.5, CurrSamplesPerSec=32.1, MemAllocated=1.2GB,"
    " MaxMemAllocated=2GB\n"
)
TRACEBACK = (
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "/app/train.py", line 12, in <module>\n[rank1]:     main()\n'
    "[rank1]: ValueError: loss is nan at step 3\n"
)
TORCHRUN = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-21_02:14:00\n"
    "  host      : gpu-07\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 3)\n"
)
ERROR_FILE = {
    "message": {
        "message": "ValueError: x",
        "extraInfo": {
            "py_callstack": TRACEBACK.replace("[rank1]: ", ""),
            "timestamp": "1763690040",
        },
    }
}
STACKS = (
    'Thread 0x00007f1 (most recent call first):\n  File "/app/train.py", line 12 in forward\n\n'
    'Current thread 0x00007f2 [python] (most recent call first):\n  File "a.py", line 3 in main\n'
)
WATCHDOG = (
    "[rank1]:[E ProcessGroupNCCL.cpp:6] [PG ID 0 PG GUID 0(default_pg) Rank 1] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=4, NumelOut=4,"
    " Timeout(ms)=8000) ran for 8097 milliseconds before timing out.\n"
)


def _pieces(data: bytes) -> tuple[bytes, int]:
    """Return a log and the size of the pieces that it is split into, given by its first byte."""
    return data[1:], 1 + (data[0] if data else 0) * 4


def _framed(data: bytes, most: int = 1000) -> list[bytes]:
    text, size = _pieces(data)
    framing = Unframer(max_pending=most)
    pieces = [framing.feed(text[at : at + size]) for at in range(0, len(text), size)]
    promise(framing.pending_bytes <= most, "more is held back than may be")
    return [*pieces, framing.finish()]


def _texts(*texts: str) -> Sequence[bytes]:
    return [b"\x40" + text.encode() for text in texts]


def _nccl(data: bytes) -> None:
    parser = NcclLog(LIMITS)
    for piece in _framed(data):
        parser.feed(piece)
    parser.sum_up()
    facts = parser.facts
    members = len(facts.members) + len(facts.past_members)
    promise(members <= LIMITS.members, "more members than the limit")
    promise(len(facts.processes) <= LIMITS.threads + 1, "more processes than the limit")
    verdict = judge(facts)
    found = findings(facts, verdict)
    json.dumps(nccl_report.as_object(facts, verdict, found), allow_nan=False)
    lines = [*nccl_report.lines(facts, verdict, found)]
    lines += nccl_report.suspects_lines(facts, suspects(facts))
    promise(all(map(str.isprintable, lines)), "a line that a terminal obeys")
    again = judge(from_json(json.loads(json.dumps(to_json(facts)))))
    promise(again == verdict, "another verdict after a restart")


def _nccl_seeds() -> Sequence[bytes]:
    return _texts(
        start(3, 16, "NET/IB/0/GDRDMA"),
        start(2, 4, "NET/Socket/0", network="Socket"),
        info(5, edge(5, 6, "P2P/IPC")) + "\n",
        "gpu-00:4003:4073 [3] transport/net_ib.cc:1 NCCL WARN NET/IB : Got completion with"
        " error 12\n",
        WATCHDOG
        + "  [1, 2] finished collective #2, but didn't join collective #3 (count from 1)\n",
        CRI.format("P", "gpu-00:1:2 [0] NCCL IN") + CRI.format("F", "FO Using network IB"),
        '{"log":"x NCCL INFO comm 0x1 rank 1 nranks 2 - Init START\\n","stream":"stdout"}\n',
    )


def _job_log(data: bytes) -> None:
    signs = FailureSigns()
    log = FailureLog("log", signs)
    for piece in _framed(data):
        log.feed(piece)
    log.finish()
    for attempt in decide(signs):
        promise(attempt.cause in causes.CAUSES, f"cause {attempt.cause!a} is none")
        ranks = [one.rank for one in attempt.victims if one.rank is not None]
        promise(len(ranks) == len(set(ranks)), "a victim twice")


def _job_log_seeds() -> Sequence[bytes]:
    prefixed = "".join(f"gpu-01: {line}\n" for line in (TRACEBACK + TORCHRUN).splitlines())
    return _texts(TRACEBACK + TORCHRUN, prefixed, json.dumps(ERROR_FILE), "\n".join(ONE_LINE))


def _step_lines(data: bytes) -> None:
    log, now = StepLog(), time.time()
    for piece in _framed(data):
        log.feed(piece, now, now)
    log.sum_up(now)
    for framework in log.facts.frameworks.values():
        values = (
            framework.step_seconds,
            framework.samples_per_second,
            framework.gpu_flops_per_second,
        )
        promise(
            all(one is None or (one > 0 and math.isfinite(one)) for one in values), "no such value"
        )
        promise(framework.loss is None or math.isfinite(framework.loss), "a loss that is no number")


def _kernel(data: bytes) -> None:
    text, size = _pieces(data)
    log = KernelLog(max_seen=MOST_SEEN)
    for at in range(0, len(text), size):
        log.feed(text[at : at + size])
    promise(len(log.seen) <= MOST_SEEN, "more events than the limit")
    report = kernel_report.as_object(log)
    verdict = report["verdict"]
    promise(verdict["cause"] in CAUSES and verdict["action"] in ACTIONS, "words of no vocabulary")
    json.dumps(report, allow_nan=False)
    promise(all(map(str.isprintable, kernel_report.lines(log))), "a line that a terminal obeys")


def _kernel_seeds() -> Sequence[bytes]:
    link = "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x1 0x0 0x0 0x4)"
    return _texts(
        "\n".join((stamped(1.5, xid(79)), stamped(2.5, xid(45, "Ch 1 caused by previous Xid 79")))),
        "\n".join((xid(145, link), recovery(2), xid(94, "Contained: SM (0x1). RST: Yes"))),
        "Feb 15 17:37:45 gpu-07 kernel: [82659.7] INFO: task a:1 blocked for more than 120"
        " seconds.",
        "oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/kubepods/x,task_memcg=/y,task=a,pid=7,uid=0",
        "4,1234,5678901234,-;mlx5_core 0000:01:00.1 eth1: Link down",
        '{"MESSAGE":"NVRM: Xid (PCI:0000:3b:00): 79, x","_TRANSPORT":"kernel"}',
    )


def _kmsg(data: bytes) -> None:
    found = [records.parse_kmsg(data), *records.parse_klog(data)]
    for one in found:
        promise(one is None or len(one.text) <= records.MAX_TEXT_BYTES, "an endless record")
        promise(one is None or math.isfinite(one.seconds), "no time")


def _journal(data: bytes) -> None:
    with stored(data, "system.journal") as path:
        file = JournalFile(path)
        try:
            promise(
                len(list(file.messages(0, BOOT_ID.hex(), 200))) <= 200, "more than was asked for"
            )
        finally:
            file.close()


def _journal_seeds() -> Sequence[bytes]:
    """Return a journal of one entry: header, entry array, entry, and its two data objects."""
    payloads = (b"_TRANSPORT=kernel", b"MESSAGE=NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off")
    array, entry = 240, 272
    places, data = [], b""
    for payload in payloads:
        places.append(entry + 96 + len(data))
        made = struct.pack("<BB6xQ48x", journal.DATA, 0, 64 + len(payload)) + payload
        data += made.ljust((len(made) + 7) // 8 * 8, b"\0")
    header = bytearray(array)
    header[:8] = journal.SIGNATURE
    header[24:40] = bytes(range(16))
    struct.pack_into("<Q", header, 152, 1)
    struct.pack_into("<Q", header, 176, array)
    entry_array = struct.pack("<BB6xQQQ", journal.ENTRY_ARRAY, 0, 32, 0, entry)
    head = struct.pack("<BB6xQQQQ16sQ", journal.ENTRY, 0, 96, 7, 0, 5_000_000, BOOT_ID, 0)
    items = b"".join(struct.pack("<QQ", place, 0) for place in places)
    return [bytes(header) + entry_array + head + items + data]


def _wtmp(data: bytes) -> None:
    with stored(data, "wtmp") as path:
        reboots.last_shutdown(path)


def _wtmp_seeds() -> Sequence[bytes]:
    record = bytearray(reboots.RECORD_BYTES)
    record[0] = reboots.RUN_LEVEL
    record[44 : 44 + len(reboots.SHUTDOWN)] = reboots.SHUTDOWN
    record[340:344] = (1_763_690_040).to_bytes(4, "little")
    return [bytes(record) * 2]


def _prefixes(data: bytes) -> None:
    for line in data.splitlines():
        _, rest = prefixes.split(line)
        promise(len(rest) <= len(line), "a prefix made a line longer")
        written = prefixes.unix_seconds(line)
        promise(written is None or math.isfinite(written), "no time")
    learnt = LearnedPrefixes()
    learnt.read_json()
    for line in data.splitlines():
        learnt.learn(line[: len(line) // 2])
        learned, _, own = learnt.split(line)
        promise(learned == b"{" or len(own) <= len(line), "a learnt prefix made a line longer")


def _prefix_seeds() -> Sequence[bytes]:
    lines = (
        CRI.format("F", "[rank3]: hello").rstrip(),
        "[default3]:hello",
        "\x1b[36m(RayTrainWorker pid=4711, ip=10.0.0.3)\x1b[0m hello",
        "3: hello",
        " 3: hello",
        "gpu-01: [rank9]: hello",
        '{"textPayload": "2026-11-29 02:11:04.113 hello"}',
        "[1,3]<stderr>:hello",
        "Feb 15 17:37:45 gpu-07 python[4711]: hello",
    )
    return [line.encode() for line in lines] + ["\n".join(lines).encode()]


def _pasted(data: bytes) -> None:
    whole = unwrap(plain(data))
    promise(isinstance(whole, bytes), "no text")
    for one in merged({"a": [data], "b": [data[::-1]]}):
        promise(one is not None, "no line")
    promise(isinstance(redaction.redacted(data.decode(errors="replace")), str), "no text")


def _pasted_seeds() -> Sequence[bytes]:
    wrapped = start(3, 16, "NET/IB/0/GDRDMA").replace(" NCCL", "\nNCCL")
    quoted = "\n".join(f"> {line}" for line in start(3, 16, "NET/IB/0").splitlines())
    return [wrapped.encode(), quoted.encode(), b"API_KEY=abcdef password: hunter2 hunter2\n"]


def _error_file(data: bytes) -> None:
    found = error_files.parse(data)
    promise(found is None or found.time is None or math.isfinite(found.time), "no time")


def _stacks(data: bytes) -> None:
    frames = thread_stacks.training_thread(data.decode(errors="replace"))
    promise(len(frames) <= MAX_FRAMES, "more frames than the limit")
    promise(all(one.function.isprintable() for one in frames), "a name that a terminal obeys")


TARGETS = (
    Target("NCCL log", _nccl, _nccl_seeds, runs=20_000),
    Target("job log", _job_log, _job_log_seeds, runs=20_000),
    Target(
        "step lines",
        _step_lines,
        lambda: _texts(MEGATRON * 2, HUGGING_FACE * 2, BAR * 3 + "\n", DEEPSPEED),
    ),
    Target("kernel log", _kernel, _kernel_seeds, runs=20_000),
    Target(
        "kernel ring",
        _kmsg,
        lambda: [
            b"4,1234,5678901234,-;NVRM: Xid\n SUBSYSTEM=pci\n",
            b"<4>[   12.345678] NVRM: x\n",
        ],
    ),
    Target("journal", _journal, _journal_seeds, (JournalError,), runs=20_000),
    Target("wtmp", _wtmp, _wtmp_seeds, runs=20_000),
    Target("log prefixes", _prefixes, _prefix_seeds),
    Target("pasted logs", _pasted, _pasted_seeds, runs=20_000),
    Target("error file", _error_file, lambda: [json.dumps(ERROR_FILE).encode()]),
    Target("thread stacks", _stacks, lambda: [STACKS.encode()]),
)
