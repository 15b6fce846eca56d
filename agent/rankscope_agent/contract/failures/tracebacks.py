"""Reads Python's tracebacks line by line, including chained ones and those of loader workers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.failures.messages import Meaning, classify
from rankscope_agent.contract.failures.signs import MAX_TEXT
from rankscope_agent.contract.failures.survival import step_of

START = "Traceback (most recent call last):"

CUT_OFF = "a traceback of which the log lacks the end"

MAX_FRAMES = 4000
"""Lines of one traceback: Python stops at 1,000 frames of two to four lines."""

TAGGED_CONTEXT = 40
"""Lines read after an exception of a writer with its own tag: messages of NCCL and CUDA have up to
20."""

UNTAGGED_CONTEXT = 3
"""The same without a tag, where the next line may come from any writer."""

_EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,200}(?::(?: |$)|$)")
_FRAME = re.compile(r'\s*File "([^"\n]{1,400})", line (\d{1,9})(?:, in (\S{1,200}))?')
_UNCAUGHT = re.compile(r"\brunpy\b.*, in _run_module_as_main$|/process\.py:\d+, in _bootstrap$")
"""The outermost frame of an exception that nothing caught, of `python -m` and of multiprocessing,
which prints it before the steps that wait in a buffer of standard output."""

_LINKS = {
    "The above exception was the direct cause of the following exception:": True,
    "During handling of the above exception, another exception occurred:": False,
}
_LOADING = re.compile(r", in _?load_(?:optimizer_)?(?:state_dict|checkpoint)$")
"""Frames whose own exceptions concern the contents of a checkpoint."""

_LAUNCHER_LINE = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d|={20}|-{20}")


@dataclass(slots=True)
class Raised:
    """One exception of a chain, with the following lines that may belong to its message."""

    line: str
    frame: str
    context: list[str] = field(default_factory=list)
    explains_next: bool = False
    uncaught: bool = False

    def meaning(self) -> Meaning:
        """Return its meaning; the lines after it count only if its own text has none."""
        own = classify(self.line)
        if own.cause == causes.USER_EXCEPTION and self.context:
            own = classify("\n".join([self.line, *self.context]))
        if own.cause == causes.USER_EXCEPTION and _LOADING.search(self.frame):
            return Meaning(causes.CHECKPOINT_INCOMPATIBLE, certain=False)
        return own


@dataclass(frozen=True, slots=True)
class ParsedError:
    """A complete traceback: its meaning, last line and innermost frame.

    Args:
        uncaught: whether its frames prove that it ended its process.
    """

    meaning: Meaning
    text: str
    frame: str
    uncaught: bool = False


class TracebackReader:
    """Reads the lines of one writer.

    Args:
        tagged: whether the tag belongs to this writer alone.
    """

    def __init__(self, *, tagged: bool) -> None:
        self._context = TAGGED_CONTEXT if tagged else UNTAGGED_CONTEXT
        self._chain: list[Raised] = []
        self._in_frames = False
        self._frames = 0
        self._frame = ""
        self._uncaught = False
        self._indent = 0
        self._linked: bool | None = None

    @property
    def is_open(self) -> bool:
        """Return True if more lines may belong to the current traceback."""
        return self._in_frames or bool(self._chain)

    @property
    def in_frames(self) -> bool:
        """Return True while frames are being read, before an exception."""
        return self._in_frames

    @property
    def is_fresh(self) -> bool:
        """Return True while the first exception of a traceback is being read."""
        return self._in_frames and not self._chain

    def feed(self, words: str) -> ParsedError | None:
        """Process a line; return the traceback that it shows to be complete."""
        begin = words.find(START)
        if begin >= 0:
            return self._begin(words, begin)
        if self._in_frames:
            self._read_frame(words)
            return None
        if not self._chain:
            return None
        return self._read_after(words)

    def finish(self) -> ParsedError | None:
        """Return the open traceback, even if it was cut off after some frames."""
        chain, self._chain = self._chain, []
        cut_off = self._in_frames and not chain
        self._in_frames, self._linked = False, None
        if cut_off:
            return ParsedError(Meaning(causes.UNKNOWN, certain=False), CUT_OFF, self._frame)
        return _found(chain) if chain else None

    def _begin(self, words: str, begin: int) -> ParsedError | None:
        inner = words[:begin].endswith("Original ")
        found = None
        if inner and self._chain:
            self._chain[-1].explains_next = True
        elif self._linked is None:
            found = self.finish()
        self._in_frames, self._frames, self._frame, self._linked = True, 0, "", None
        self._indent = 0 if inner else len(words) - len(words.lstrip())
        return found

    def _read_frame(self, words: str) -> None:
        self._frames += 1
        if self._frames > MAX_FRAMES:
            self._in_frames, self._chain = False, []
            return
        match = _FRAME.match(words)
        if match is not None:
            where = f", in {match[3]}" if match[3] else ""
            outermost, self._frame = not self._frame, f"{match[1]}:{match[2]}{where}"
            if outermost:
                self._uncaught = _UNCAUGHT.search(self._frame) is not None
            return
        own = words[self._indent :] if words[: self._indent].isspace() else words
        if own and not own[0].isspace() and _EXCEPTION.match(own):
            self._in_frames = False
            text = own.strip()[:MAX_TEXT]
            self._chain.append(Raised(text, self._frame, uncaught=self._uncaught))

    def _read_after(self, words: str) -> ParsedError | None:
        text = words.strip()
        if text in _LINKS:
            self._linked = True
            self._chain[-1].explains_next = _LINKS[text]
            return None
        raised = self._chain[-1]
        if not text:
            return None
        full = len(raised.context) >= self._context
        if full or _LAUNCHER_LINE.match(text) or step_of(text.encode()):
            return self.finish()
        raised.context.append(text[:MAX_TEXT])
        return None


def _found(chain: list[Raised]) -> ParsedError:
    """Return the meaning of a chain: of its last exception, unless another explains more."""
    last = chain[-1]
    meaning = last.meaning()
    for raised in reversed(chain[:-1]):
        if not raised.explains_next:
            break
        earlier = raised.meaning()
        if earlier.cause != causes.USER_EXCEPTION and meaning.cause == causes.USER_EXCEPTION:
            meaning = earlier
    return ParsedError(meaning, last.line, last.frame, last.uncaught)


def is_frame(line: str) -> bool:
    """Return True for the line of a traceback that names a file."""
    return _FRAME.match(line) is not None


_ESCAPED_FRAME = b"\\n  File "


def is_escaped(line: bytes) -> bool:
    """Return True if a traceback is contained in one line, with its line ends escaped."""
    return _ESCAPED_FRAME in line


def unescaped(line: str) -> list[str]:
    """Return the lines of a traceback that a logger wrote into a JSON string or a `repr`."""
    begin = max(0, line.find(START))
    text = line[begin:].replace('\\\\"', '"').replace('\\"', '"')
    return text.replace("\\n", "\n").rstrip("\n\"', }]").split("\n")


def read(lines: list[str]) -> ParsedError | None:
    """Return the traceback in a text that contains nothing else."""
    reader = TracebackReader(tagged=True)
    found = None
    for line in lines:
        found = reader.feed(line) or found
    return reader.finish() or found
