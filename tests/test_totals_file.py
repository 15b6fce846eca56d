"""What an agent leaves to the next one: damaged, hostile, not writable, or of another agent."""

from __future__ import annotations

import json
import threading

import pytest

from collected_page import Page, collector
from following_agents import JOB, NEWEST, Node, count, steps, write_read
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.settings.command_line import parse_config
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.training import collector as training
from rankscope_agent.sources.training import continuation, totals_file
from rankscope_agent.sources.training.continuation import Continuation
from rankscope_agent.sources.training.totals_file import TotalsFile
from ring_writer import NS, RingWriter


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


@pytest.mark.parametrize("place", range(5))
def test_damaged_state_is_not_used_whatever_was_changed(node, caplog, place):
    writer = RingWriter(node.folder)
    first = node.agent()
    write_read(node, first, writer, 40)
    node.ended(first)
    content = bytearray(node.state.read_bytes())
    at = content.index(b'"steps":[40') + len(b'"steps":[') if place == 0 else 37 * place
    content[at] ^= 1
    node.state.write_bytes(content)
    assert steps(node.page(node.agent())) == NEWEST
    assert f"cannot continue the totals of steps from {node.state} (it is damaged)" in caplog.text
    writer.end()


@pytest.mark.parametrize("content", [b"", b"\n", b"0" * 99, b"\xff" * 4096])
def test_something_else_in_place_of_the_state_costs_nothing_but_the_state(node, content):
    writer = RingWriter(node.folder)
    writer.step(5)
    node.state.write_bytes(content)
    assert steps(node.page(node.agent())) == (5, 0.5)
    writer.end()


def test_what_one_ring_says_costs_no_other_job_its_totals(node):
    liar = RingWriter(node.folder, "1.ring", pid=1, job_id="team/liar")
    honest = RingWriter(node.folder, "2.ring", pid=2)
    first = node.agent()
    page = write_read(node, first, honest, 40)
    liar.seq = (1 << 47) + 3
    for _ in range(3):
        liar.step(16, step_ns=6 * 86_400 * NS, samples=0xFFFFFFF0)
        page = node.page(first)
    assert page.rank(metrics.STEPS, job="team/liar") == 48
    node.ended(first)
    liar.seq = 0
    liar.step(8)
    honest.step(2)
    second = node.agent()
    page = node.page(second)
    assert steps(page) == (42, 4.2)
    assert count(page) == 42
    for writer in (liar, honest):
        writer.end()


def test_a_job_that_cannot_be_read_back_costs_no_other_its_totals(node, caplog):
    rings = [RingWriter(node.folder, f"{n}.ring", pid=n, job_id=f"team/{n}") for n in (1, 2)]
    first = node.agent()
    for writer in rings:
        write_read(node, first, writer, 40)
    node.ended(first)
    state = json.loads(node.state.read_bytes().split(b"\n")[1])
    state["jobs"]["team/1"]["ranks"]["0"]["steps"] = [1e999]
    totals_file.TotalsFile(node.state).write_last(state)
    page = node.page(node.agent())
    assert page.rank(metrics.STEPS, job="team/1") == 1
    assert page.rank(metrics.STEPS, job="team/2") == 40
    assert "cannot continue the totals of job team/1" in caplog.text
    for writer in rings:
        writer.end()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (["corrupt"], "two"),
        (["corrupt"], 1e999),
        (["ended"], "now"),
        (["jobs"], []),
        (["jobs", JOB], 5),
        (["jobs", JOB, "active"], None),
        (["jobs", JOB, "latency"], [1, 2]),
        (["jobs", JOB, "ranks", "0", "steps"], ["x"] * 9),
        (["jobs", JOB, "ranks", "0", "steps"], [None] * 9),
        (["jobs", JOB, "ranks", "0", "steps"], [1e999] * 9),
        (["jobs", JOB, "ranks", "0", "shares"], None),
        (["jobs", JOB, "ranks", "0", "shares"], [1e999, 0.0]),
        (["jobs", JOB, "ranks", "0", "rings"], [["key"]]),
        (["jobs", JOB, "ranks", "0", "spans"], {"totals": [None] * 10}),
    ],
)
def test_values_of_wrong_types_cost_totals_and_no_run(node, caplog, place, value):
    """No agent writes such a file, but one of another version may."""
    writer = RingWriter(node.folder)
    first = node.agent()
    write_read(node, first, writer, 40)
    node.ended(first)
    state = part = json.loads(node.state.read_bytes().split(b"\n")[1])
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    totals_file.TotalsFile(node.state).write_last(state)
    second = node.agent()
    assert steps(node.page(second)) == NEWEST
    writer.step()
    assert steps(node.page(second)) == (2, 0.2)
    said = [record for record in caplog.records if "cannot continue" in record.message]
    assert len(said) == 1
    writer.end()


def test_an_agent_goes_on_without_a_place_for_its_state_and_says_so_once(node, caplog):
    node.state.with_suffix(".tmp").mkdir()
    writer = RingWriter(node.folder)
    agent = node.agent()
    assert steps(write_read(node, agent, writer, 400)) == (400, 40.0)
    node.ended(agent)
    said = [record for record in caplog.records if "cannot write" in record.message]
    assert len(said) == 1
    assert "after a restart, totals of steps may begin anew" in said[0].message
    assert not node.state.exists()
    writer.end()


def test_where_nothing_can_be_written_what_an_earlier_agent_left_is_not_continued_twice(node):
    """Else totals would fall to those of an agent two before, and count again in Prometheus."""
    writer = RingWriter(node.folder)
    first = node.agent()
    write_read(node, first, writer, 40)
    node.ended(first)
    full = node.state.with_suffix(".tmp")
    full.mkdir()
    assert steps(write_read(node, node.agent(), writer, 60)) == (100, 10.0)
    full.rmdir()
    assert steps(node.page(node.agent())) == NEWEST, "not 40 and the 16 in the ring"
    writer.end()


def test_what_this_agent_has_written_stays_when_it_can_write_no_more(node):
    writer = RingWriter(node.folder, capacity=64)
    agent = node.agent()
    write_read(node, agent, writer, 100)
    node.state.with_suffix(".tmp").mkdir()
    assert steps(write_read(node, agent, writer, 20)) == (120, 12.0)
    node.ended(agent)
    assert steps(node.page(node.agent())) == (120, 12.0)
    writer.end()


def test_more_than_16_mebibytes_are_neither_written_nor_read(node, caplog, monkeypatch):
    assert totals_file.MAX_BYTES == 16 << 20
    writer = RingWriter(node.folder)
    writer.step(5)
    monkeypatch.setattr(totals_file, "MAX_BYTES", 100)
    node.ended(node.agent())
    first = node.agent()
    node.page(first)
    node.ended(first)
    assert "limit 100" in caplog.text
    writer.end()


def test_a_disk_that_hangs_delays_neither_a_run_nor_the_end(node, monkeypatch):
    monkeypatch.setattr(totals_file, "LAST_SECONDS", 0.01)
    writer = RingWriter(node.folder)
    agent = node.agent()
    answers = threading.Event()
    begun: list[bytes] = []

    def replace(content: bytes) -> None:
        begun.append(content)
        answers.wait(60.0)

    monkeypatch.setattr(agent._continuation._store, "_replace", replace)
    for _ in range(3):
        writer.step(5)
        node.clock.now += 11.0
        page = Page(agent)
    assert steps(page) == (15, 1.5)
    node.ended(agent)
    assert len(begun) == 1, "one thread at a time waits for it"
    answers.set()
    writer.end()


def test_totals_of_other_rings_are_not_continued(node):
    writer = RingWriter(node.folder)
    first = node.agent()
    write_read(node, first, writer, 40)
    node.ended(first)
    other = Continuation(TotalsFile(node.state), ["/elsewhere"], node.clock.now)
    agent = collector(node.folder, node.clock)
    agent.continue_after(other)
    assert steps(node.page(agent)) == NEWEST
    writer.end()


def test_an_agent_that_runs_once_counts_whole_rings_and_leaves_nothing(tmp_path):
    writer = RingWriter(tmp_path)
    writer.step(40)
    state = tmp_path / "state"
    state.mkdir()
    flags = [f"--path.ring-dir={tmp_path}", f"--path.state={state}", "--once"]
    flags += [f"--path.kubelet={tmp_path}/none"]
    made = training.create(parse_config(flags, {}, ("training",), "1"), PodDirectory())
    page = Page(made)
    assert page.rank(metrics.STEPS) == 16
    made.finish()
    assert list(state.iterdir()) == []
    writer.end()


def test_jobs_of_the_namespace_that_takes_most_are_left_out_of_a_file_that_is_too_large(
    node, caplog, monkeypatch
):
    names = ["big/a", "big/b", "big/c", "small/job"]
    rings = []
    for pid, name in enumerate(names, 1):
        for rank in range(1 if name != "big/b" else 3):
            fields = {"pid": 10 * pid + rank, "rank": rank, "job_id": name}
            rings.append(RingWriter(node.folder, f"{pid}-{rank}.ring", capacity=64, **fields))
    first = node.agent()
    for _ in range(5):
        for writer in rings:
            writer.step(20)
        node.page(first, 1.0)
    monkeypatch.setattr(totals_file, "MAX_BYTES", 1000)
    for _ in range(3):
        node.page(first, 11.0)
    node.ended(first)
    said = [record for record in caplog.records if "has no room" in record.message]
    assert len(said) == 1
    assert "2 jobs, one of them big/b" in said[0].message
    assert 500 < node.state.stat().st_size <= 1000
    page = node.page(node.agent())
    found = [page.rank(metrics.STEPS, job=name) for name in names]
    assert found == [100, 1, 1, 100]
    for writer in rings:
        writer.end()


def test_ranks_that_do_not_come_back_do_not_become_more_with_each_agent(node, monkeypatch):
    monkeypatch.setattr(continuation, "MAX_KEPT_RANKS", 50)
    honest = RingWriter(node.folder, "honest.ring", pid=1, job_id="other/job", capacity=64)
    honest.step(10)
    sizes, numbers = [], iter(range(1000))
    for _ in range(6):
        agent = node.agent()
        for number, _ in zip(numbers, range(20), strict=False):
            writer = RingWriter(node.folder, f"{number}.ring", rank=number, pid=2 + number)
            writer.step()
            node.page(agent)
            writer.end()
            writer.path.unlink()
            node.page(agent)
        honest.step(10)
        page = node.page(agent)
        node.ended(agent)
        state = json.loads(node.state.read_bytes().split(b"\n")[1])
        sizes.append(sum(len(job["ranks"]) for job in state["jobs"].values()))
    assert page.rank(metrics.STEPS, job="other/job") == 70
    assert max(sizes) <= 50 + 21, sizes
    honest.end()
