"""The probe reads, writes and closes nothing that is not its own, whatever a program does."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rankscope_probe
from probe_jobs.nurseries import Nursery
from probe_jobs.running import read_only_ring, read_rings

STEPS = 12


@pytest.fixture(scope="module")
def weights(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give what a training prints that nobody disturbs."""
    (ended,) = nursery.run(tmp_path_factory.mktemp("rings"), "steps.py", str(STEPS), finalized=True)
    assert ended.output.startswith("weights")
    return ended.output


def test_file_that_took_over_the_rings_descriptor_is_left_as_it_is(
    nursery: Nursery, weights: str, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    (ended,) = nursery.run(
        tmp_path / "rings", "steps.py", str(STEPS), "take-over", OWN_FILE=str(own), finalized=True
    )
    assert (ended.code, ended.output) == (0, weights)
    assert own.read_bytes() == b"precious" * 4096


def test_steps_go_on_in_a_new_ring_when_the_program_closed_the_first(
    nursery: Nursery, tmp_path: Path
) -> None:
    (ended,) = nursery.run(tmp_path, "steps.py", str(STEPS), "close", finalized=True)
    (line,) = ended.errors.splitlines()
    assert "closed" in line
    before, after = sorted(read_rings(tmp_path), key=lambda ring: ring.records[0].step)
    assert [record.step for record in before.records] == [1, 2, 3, 4, 5]
    assert [record.step for record in after.records] == [7, 8, 9, 10, 11]


def test_program_that_closes_all_descriptors_again_and_again_gets_few_rings(
    nursery: Nursery, weights: str, tmp_path: Path
) -> None:
    (ended,) = nursery.run(tmp_path, "steps.py", str(STEPS), "close-always", finalized=True)
    assert (ended.code, ended.output) == (0, weights)
    assert len(read_rings(tmp_path)) == rankscope_probe._MAX_RINGS


def test_forked_child_closes_no_file_of_the_programs(
    nursery: Nursery, weights: str, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    (ended,) = nursery.run(
        tmp_path / "rings",
        "steps.py",
        str(STEPS),
        "take-over-and-fork",
        OWN_FILE=str(own),
        finalized=True,
    )
    assert (ended.code, ended.output) == (0, "child keeps its files True\n" + weights)


@pytest.mark.parametrize(("kind", "rings"), [("limit-first", 0), ("limit", 1)])
def test_limit_on_file_sizes_ends_no_training(
    nursery: Nursery, weights: str, tmp_path: Path, kind: str, rings: int
) -> None:
    """SIGXFSZ is at its default there, which ends whatever writes beyond the limit."""
    (ended,) = nursery.run(tmp_path, "steps.py", str(STEPS), kind, finalized=True)
    assert (ended.code, ended.output) == (0, weights)
    (line,) = ended.errors.splitlines()
    assert "RLIMIT_FSIZE" in line
    assert [len(ring.records) for ring in read_rings(tmp_path)] == [STEPS // 2 - 1] * rings
    assert len(list(tmp_path.iterdir())) == 4 * rings  # with extension, spans and signals


def test_descriptor_is_not_ours_once_its_number_leads_elsewhere(tmp_path: Path) -> None:
    ring = rankscope_probe._Ring(str(tmp_path), "2.13.0", None, 0)
    with (tmp_path / "other").open("w+b") as other:
        other.write(bytes(8192))
        os.dup2(other.fileno(), ring.slots.descriptor)
        with pytest.raises(rankscope_probe._LostError, match="closed"):
            ring.write(*range(8), 1, -1, 1)
        ring.close()
        os.fstat(ring.slots.descriptor)  # still open
        os.close(ring.slots.descriptor)
        assert not any(Path(other.name).read_bytes())


def test_pipe_in_the_rings_place_gets_nothing(tmp_path: Path) -> None:
    ring = rankscope_probe._Ring(str(tmp_path), "2.13.0", None, 0)
    reading, writing = os.pipe()
    os.dup2(writing, ring.slots.descriptor)
    with pytest.raises(rankscope_probe._LostError):
        ring.write(*range(8), 1, -1, 1)
    for descriptor in (ring.slots.descriptor, writing):
        os.close(descriptor)
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_writing_leaves_the_mark_by_which_the_descriptor_is_known(tmp_path: Path) -> None:
    ring = rankscope_probe._Ring(str(tmp_path), "2.13.0", None, 0)
    for _ in range(3):
        ring.write(*range(8), 1, -1, 1)
    ring.close()
    assert len(read_only_ring(tmp_path).records) == 3


@pytest.mark.parametrize("failure", ["raise SystemExit(3)", "import no_such_module"])
def test_watch_raises_no_more_than_loading_by_torch_does(
    bare_nursery: Nursery, tmp_path: Path, failure: str
) -> None:
    job = tmp_path / "job.py"
    job.write_text(
        "import rankscope_probe\n"
        f"def refuse(torch):\n {failure}\n"
        "rankscope_probe._Probe = refuse\n"
        "rankscope_probe.watch()\n"
        "print('trains')\n"
    )
    (ended,) = bare_nursery.run(tmp_path / "rings", str(job), finalized=True)
    assert (ended.code, ended.output) == (0, "trains\n")
    (line,) = ended.errors.splitlines()
    assert line.startswith("rankscope probe: not started")


def test_watch_raises_nothing_where_there_is_no_standard_error(
    bare_nursery: Nursery, tmp_path: Path
) -> None:
    job = tmp_path / "job.py"
    job.write_text(
        "import sys\n"
        "import rankscope_probe\n"
        "rankscope_probe._Probe = None\n"
        "sys.stderr = None\n"
        "rankscope_probe.watch()\n"
        "print('trains')\n"
    )
    (ended,) = bare_nursery.run(tmp_path / "rings", str(job), finalized=True)
    assert (ended.code, ended.output, ended.errors) == (0, "trains\n", "")


def test_checkpoints_are_spans_again_after_one_that_could_not_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaders = SimpleNamespace(get_worker_info=lambda: None)
    torch: Any = SimpleNamespace(
        autograd=SimpleNamespace(),
        utils=SimpleNamespace(data=loaders),
        _C=SimpleNamespace(),
        _disable_dynamo=lambda function: function,
    )
    guard = rankscope_probe._Guard(torch)
    clock, store = rankscope_probe._StepClock(torch), SimpleNamespace(ask=lambda *_: None)
    spans = rankscope_probe._Spans(torch, guard, clock, store)
    ring = rankscope_probe._Ring(str(tmp_path), "2.13.0", None, 0)
    spans.attach(ring.spans)
    save = spans.marked(rankscope_probe._SAVE, lambda path: None, 0)
    os.close(ring.spans.descriptor)
    save("lost.pt")
    ring.close()
    assert "closed" in capsys.readouterr().err
    begun: list[int] = []
    spans.attach(SimpleNamespace(write=lambda number, packed: begun.append(number)))
    save("kept.pt")
    assert begun == [1, 1]  # as it began, and as it ended
