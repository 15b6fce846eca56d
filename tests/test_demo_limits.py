"""Limits of what the demo, the canary and the fabric check run: how long, how often, how much."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rankscope_analyzers.canary import seen, trial
from rankscope_analyzers.canary.seen import Seen
from rankscope_analyzers.commands import canary, demo_tour
from rankscope_analyzers.demo import hang, stack
from rankscope_analyzers.demo import run as demo
from rankscope_analyzers.demo.run import DemoError
from rankscope_analyzers.fabric import judge
from rankscope_analyzers.fabric.measured import Measured
from recording_entry import Entry


class Clock:
    """Time that passes while one sleeps, and a little with each look at it."""

    def __init__(self):
        self.now, self.pauses = 1000.0, []

    def time(self):
        return self.now

    def monotonic(self):
        return self.now

    def perf_counter(self):
        self.now += 1e-3
        return self.now

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds

    @property
    def slept(self):
        return sum(self.pauses)


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    for module in (demo, hang, stack, trial):
        monkeypatch.setattr(module, "time", found)
    return found


@pytest.fixture
def commands(monkeypatch):
    """Command lines that would be run."""
    found = []

    def process(command, log, environment):
        log.write_text("")
        found.append(command)
        return nullcontext(SimpleNamespace(poll=lambda: None, returncode=0))

    monkeypatch.setattr(demo, "process", process)
    return found


def test_an_agent_is_up_within_two_minutes_and_is_asked_ten_times_a_second(
    clock, commands, monkeypatch, tmp_path
):
    monkeypatch.setattr(demo, "answers", lambda url: False)
    with pytest.raises(DemoError, match="did not start"), demo.agent(tmp_path):
        pass
    assert set(clock.pauses) == {0.1}
    assert clock.slept == pytest.approx(120.0, abs=0.2)


def test_the_demo_trains_four_ranks_for_three_hundred_steps(commands, tmp_path):
    with demo.training(tmp_path, "none", 0):
        pass
    assert {"--ranks=4", "--steps=300"} <= set(commands[0])


def test_a_run_of_the_demo_ends_when_it_has_made_no_step_for_two_minutes(
    clock, monkeypatch, tmp_path
):
    monkeypatch.setattr(demo, "_newest_step", lambda url: min(clock.slept, 500.0))
    console = demo.Console(quiet=True)
    with pytest.raises(DemoError, match="made no step for 120 s"):
        demo._watch(SimpleNamespace(poll=lambda: None), "", console, tmp_path)
    assert set(clock.pauses) == {0.5}
    assert clock.slept == pytest.approx(620.0, abs=1.0)


def test_a_process_has_ten_seconds_to_end_and_a_page_thirty_to_come(monkeypatch):
    waited = []
    demo._wait(SimpleNamespace(wait=waited.append))
    page = SimpleNamespace(read=lambda: b"")
    monkeypatch.setattr(
        demo, "urlopen", lambda url, timeout: waited.append(timeout) or nullcontext(page)
    )
    demo._newest_step("http://a")
    assert waited == [10.0, 30.0]


def test_a_job_of_the_demo_hangs_after_five_seconds_and_is_looked_at_every_two(
    clock, commands, monkeypatch
):
    asked = []

    def of_agents(urls, job, since, hang_after_seconds):
        asked.append(hang_after_seconds)
        return SimpleNamespace(jobs=(), evidence=None)

    def reports(timing, evidence, now, hang_after_seconds):
        asked.append(hang_after_seconds)
        return ()

    monkeypatch.setattr(demo, "answers", lambda url: True)
    monkeypatch.setattr(demo, "require", lambda rank: None)
    monkeypatch.setattr(hang.gather, "of_agents", of_agents)
    monkeypatch.setattr(hang.job_reports, "reports", reports)
    with pytest.raises(DemoError, match="did not hang"):
        hang.run(0, demo.Console(quiet=True))
    assert set(asked) == {5.0}
    assert clock.pauses == [2.0] * 150


def test_the_job_below_the_stack_makes_more_steps_than_anybody_watches(monkeypatch):
    made = []
    for name in ("require", "find_programs", "generated_folder"):
        owner = demo if name == "require" else stack
        value = (None, None) if name == "find_programs" else None
        monkeypatch.setattr(owner, name, lambda *_, value=value: value)
    monkeypatch.setattr(demo, "agent", lambda *_: nullcontext("http://a"))
    monkeypatch.setattr(demo, "training", lambda *given: made.append(given) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        stack.run("none", 0, None, demo.Console(quiet=True))
    assert [given[3] for given in made] == [1_000_000]


def test_alerts_of_the_stack_are_looked_for_every_second_and_servers_five_times(
    clock, commands, monkeypatch, tmp_path
):
    monkeypatch.setattr(stack, "_alerts", lambda url: ())
    job = SimpleNamespace(poll=lambda: None)
    stack._follow(job, tmp_path, "", 10.0, demo.Console(quiet=True))
    assert clock.pauses == [1.0] * 10
    clock.pauses.clear()
    monkeypatch.setattr(demo, "answers", lambda url: len(clock.pauses) > 3)
    with stack._server("x", [], tmp_path, "a:1", "/"):
        pass
    assert clock.pauses == [0.2] * 4


class Nothing:
    """Has no gradients, whatever is made of it."""

    def square(self):
        return self

    mean = square

    def backward(self):
        pass


class Training:
    """The job of the demo, in this process, without peers and without multiplying anything."""

    def __init__(self, monkeypatch, rank, rings):
        monkeypatch.setenv("RANKSCOPE_RING_DIR", str(rings))  # optimizers have the probe here
        self.job = pytest.importorskip("rankscope_analyzers.demo.job", reason="needs torch")
        self.clock, self.shapes, self.layers = Clock(), set(), ()
        monkeypatch.setattr(self.job, "time", self.clock)
        monkeypatch.setattr(self.job.dist, "init_process_group", lambda backend: None)
        monkeypatch.setattr(self.job.dist, "destroy_process_group", lambda: None)
        monkeypatch.setattr(self.job.dist, "get_rank", lambda: rank)
        monkeypatch.setattr(self.job, "DistributedDataParallel", self.model)
        self.monkeypatch = monkeypatch

    def model(self, layers):
        self.layers = list(layers)
        return self

    def parameters(self):
        return self.layers[-1].parameters()

    def __call__(self, batch):
        self.shapes.add(tuple(batch.shape))
        for layer in self.layers:
            if isinstance(layer, self.job.Throttled):
                layer(batch)
        return Nothing()

    def run(self, fault, steps):
        words = ["job.py", f"--steps={steps}", f"--fault={fault}", "--rank=1"]
        self.monkeypatch.setattr("sys.argv", words)
        began = self.clock.now
        self.job.main()
        return self.clock.now - began


@pytest.mark.parametrize(
    ("rank", "fault", "seconds"),
    [(0, "slow-data", 0.004), (1, "slow-data", 0.034), (0, "slow-compute", 0.004),
     (1, "slow-compute", 0.034)],
)  # fmt: skip
def test_a_batch_takes_four_milliseconds_and_a_fault_thirty(
    monkeypatch, tmp_path, rank, fault, seconds
):
    training = Training(monkeypatch, rank, tmp_path)
    assert training.run(fault, 2) / 2 == pytest.approx(seconds, abs=3e-3)
    assert training.shapes == {(16, 64)}
    linear = [one for one in training.layers if hasattr(one, "in_features")]
    assert [one.in_features for one in linear] == [64] * 4


def test_a_rank_that_hangs_does_so_for_an_hour_after_120_steps(monkeypatch, tmp_path):
    training = Training(monkeypatch, 1, tmp_path)
    training.run("hang", 121)
    assert training.clock.pauses.index(3600.0) == 121  # its batch was read
    assert training.clock.pauses.count(0.004) == 121


def test_the_tour_watches_gpus_for_six_seconds(monkeypatch):
    asked = []
    monkeypatch.setattr(demo, "agent", lambda *_: nullcontext("http://127.0.0.1:1"))
    monkeypatch.setattr(demo_tour.gpus, "run", asked.append)
    demo_tour._hot_gpu(demo.Console(quiet=True), 0)
    assert [one.seconds for one in asked] == [6.0]


def test_the_canary_trains_for_1500_steps(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr(demo, "require", lambda rank: None)
    monkeypatch.setattr(demo, "training", lambda *given: made.append(given) or 1 / 0)
    with pytest.raises(ZeroDivisionError), canary._training(tmp_path, "canary"):
        pass
    assert [given[3] for given in made] == [1500]


def test_whom_the_canary_named_is_looked_for_every_two_seconds(clock):
    observed = []
    found = trial.wait("job", lambda job: Seen(), clock.now, 10.0, lambda: None, observed.append)
    assert found.result == "missed"
    assert clock.pauses == [2.0] * 5
    assert [one.result for one in observed] == ["missed"] * 5


def test_a_watchs_page_is_there_within_ten_seconds_and_has_256_mib(monkeypatch):
    asked = []

    def body(agent, path, most, seconds):
        asked.append((path, most, seconds))
        return b""

    monkeypatch.setattr(seen.Agent, "body", body)
    assert seen._answer("http://w", Entry()) == []
    assert asked == [("/metrics", 256 << 20, 10.0)]


def fabric(rates):
    return Measured([f"n{rank}" for rank in range(200)], "gloo", (), rates, {}, {})


def test_64_slow_ranks_are_told_from_those_that_they_send_to():
    """Beyond, all others are judged at once: also who only receives from slow ones."""

    def kinds(slow):
        rates = {
            (rank, (rank + offset) % 200): 0.1 if rank < slow else 1.0
            for rank in range(200)
            for offset in (1, 2)
        }
        return {one.kind for one in judge.faults(fabric(rates))}

    assert kinds(64) == {"sends"}
    assert kinds(67) == {"sends", "receives"}


def test_a_doubtful_link_stands_a_tenth_apart_from_the_others():
    links = {(a, b): 1.0 for a in range(4) for b in range(4) if a != b}
    near = fabric(links | {(0, 1): 0.8, (3, 1): 0.73})
    assert judge.settled(near, None)
    assert not judge.settled(replace(near, rates={**near.rates, (3, 1): 0.71}), None)


@pytest.fixture
def measure():
    return pytest.importorskip("rankscope_analyzers.fabric.measure", reason="needs torch")


def test_a_link_is_measured_three_times_with_twenty_echoes_of_eight_bytes(measure, monkeypatch):
    links = measure._Links.__new__(measure._Links)
    links.device, links.rank, links.ranks = measure.torch.device("cpu"), 0, 3
    sent, echoed = [], []
    monkeypatch.setattr(links, "_received", lambda *_: sent.append(1) or 1.0)
    monkeypatch.setattr(links, "_echoed", lambda small, *_: echoed.append(small.numel()) or 1.0)
    assert len(list(links.rates(64))) == len(list(links.round_trips())) == 2
    assert len(sent) == 2 * 3
    assert echoed == [8] * 2 * 20


@pytest.mark.parametrize(("once", "count"), [(1e-3, 50), (0.1, 20), (9.0, 1)])
def test_an_all_reduce_is_timed_fifty_times_after_two(measure, monkeypatch, once, count):
    counts = []
    links = SimpleNamespace(device="cpu", timed=lambda run, number: counts.append(number) or once)
    monkeypatch.setattr(measure.dist, "get_rank", lambda: 0)
    monkeypatch.setattr(measure.dist, "get_world_size", lambda: 1)
    monkeypatch.setattr(measure.dist, "all_reduce", lambda *_, **__: None)
    measure._reduction(links, 64, 2.0)
    assert counts == [2, count]


def test_what_is_not_clear_is_measured_eight_times_more(measure, monkeypatch):
    again = []
    monkeypatch.setattr(measure.dist, "init_process_group", lambda *_, **__: None)
    monkeypatch.setattr(measure.dist, "destroy_process_group", lambda: None)
    nothing = SimpleNamespace(
        rates=lambda size: (), round_trips=lambda: (), agreed=lambda wanted: False
    )
    monkeypatch.setattr(measure, "_Links", lambda device: nothing)
    monkeypatch.setattr(measure, "_together", lambda own, backend: None)
    monkeypatch.setattr(measure, "_better", lambda own, *_: again.append(own) or own)
    measure._measured(measure.Plan("gloo", (), 8, 1.0, 1.0), "gloo", {})
    assert len(again) == 8


def test_a_gpu_multiplies_matrices_of_8192_and_copies_256_mib_five_times(measure, monkeypatch):
    made, timed = [], []
    torch = SimpleNamespace(
        randn=lambda *size, **_: made.append(size),
        empty=lambda size, **_: made.append(size),
        bfloat16=None,
        uint8=None,
    )
    monkeypatch.setattr(measure, "torch", torch)
    monkeypatch.setattr(measure, "_seconds", lambda run, device: timed.append(1) or 2.0)
    found = measure._device_speed(SimpleNamespace(type="cuda"))
    assert made == [(8192, 8192), 256 << 20, 256 << 20]
    assert (found.flops, found.to_device, found.to_host) == (8192**3, 128 << 20, 128 << 20)
    assert len(timed) == 3 * 5
