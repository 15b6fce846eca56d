"""Ranks that speak for a job of another namespace, and agents for another node: nobody believes
them, whatever agents of any version say, and whoever reads is told."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pytest

from answering_agents import Agent as FakeAgent
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.gather import of_agents
from rankscope_analyzers.intake import agent_pages, job_ownership
from rankscope_analyzers.intake.agent_client import Agent
from rankscope_analyzers.intake.cluster import NodeAgents
from rankscope_analyzers.intake.job_ownership import believed
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from simulated_jobs import Fault, Job, records

HEALTHY = Job(ranks=8, steps=80)
SLOW = Job(ranks=8, steps=80, faults=(Fault("compute", (7,), 0.8, first_step=30),))


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("rankscope_analyzers.intake.agent_pages.POLL_SECONDS", 0.05)


class Node(FakeAgent):
    """An agent that believes its pods: ranks of one job, of a pod in some namespace.

    Args:
        says: whether its /api/v1/ranks has the pod's namespace, as newer agents' have.
    """

    def __init__(self, node, ranks, namespace, job=HEALTHY, says=True, uid="u", size=8):
        self.namespace, self.says, self.uid, self.size = namespace, says, uid, size
        rows = records(job)  # now: on a busy machine it takes longer than a reader waits
        rows = rows[rows["rank"].isin(ranks)].assign(job_id="t/j", node=node)
        body = {"columns": list(rows.columns), "rows": rows.to_numpy().tolist(), "truncated": False}
        self.body = json.dumps(body).encode()
        super().__init__(node, ranks)

    def page(self):
        lines = [f"rankscope_snapshot_timestamp_seconds {time.time()}\n"]
        pod = f'pod_uid="{self.uid}",pod_namespace="{self.namespace}",pod_name="w"'
        for rank in self.ranks:
            labels = f'job_id="t/j",rank="{rank}"'
            lines.append(f'rankscope_rank_info{{{labels},node="{self.node}",{pod}}} 1\n')
            alive = int(self.namespace != "mallory")
            lines.append(f"rankscope_rank_alive{{{labels}}} {alive}\n")
        return "".join(lines)

    def identities(self):
        more = {"pod_namespace": self.namespace} if self.says else {}
        ranks = super().identities()
        return [{**rank, "pod_uid": self.uid, **more, "world_size": self.size} for rank in ranks]

    def steps(self):
        return self.body


def told(*agents, cluster=None):
    """Return what is read of agents, and the reports on their jobs."""
    found = of_agents([agent.url for agent in agents], None, 0.0, cluster=cluster)
    made = job_reports.reports(diagnose_each(found.jobs), found.evidence, time.time())
    return found, {report.job_id: report for report in made}


@pytest.mark.parametrize("says", [True, False])
@pytest.mark.parametrize(("namespace", "uid"), [("mallory", "v"), ("", "")])
def test_ranks_whose_pod_is_not_in_the_jobs_namespace_are_refused_and_said(says, namespace, uid):
    """A pod of another namespace, or a process of no pod, claims rank 7 and to be rank 1."""
    with (
        Node("n0", range(7), "t") as own,
        Node("n1", (1, 7), namespace, SLOW, says, uid, size=80) as foreign,
    ):
        found, reports = told(own, foreign)
    report = reports["t/j"]
    assert sorted(found.jobs[0].records["rank"].unique()) == list(range(7))
    assert set(found.jobs[0].records["node"]) == {"n0"}
    assert found.jobs[0].world_size == 8
    assert sorted(report.locations) == list(range(7))
    assert (report.incidents, report.verdict.cause) == ((), None)
    who = f"namespace {namespace}" if namespace else "no pod"
    (note,) = [one for one in report.unobserved if who in one]
    assert "ranks 1, 7 of job t/j on node n1" in note


def test_what_the_pages_of_older_agents_say_is_enough_to_refuse_their_step_records():
    with (
        Node("n0", range(7), "t", says=False) as own,
        Node("n1", (7,), "mallory", SLOW, says=False) as foreign,
    ):
        found, _ = told(own, foreign)
    assert set(found.jobs[0].records["node"]) == {"n0"}


def test_jobs_outside_of_kubernetes_are_believed_as_before():
    with (
        Node("n0", range(4), "", SLOW, uid="") as one,
        Node("n1", range(4, 8), "", SLOW, uid="") as two,
    ):
        found, reports = told(one, two)
    assert sorted(found.jobs[0].records["rank"].unique()) == list(range(8))
    assert reports["t/j"].incidents[0].where.ranks == (7,)


def series(**labels):
    text = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"rankscope_rank_info{{{text}}} 1\n"


OWN = series(job_id="ml/a", rank="0", pod_namespace="ml", pod_uid="u")


@pytest.mark.parametrize(
    "line",
    [
        series(job_id="ml/a", rank="1", pod_namespace="x", pod_uid="v"),
        series(job_id="ml/a", rank="1", pod_namespace="", pod_uid=""),
        series(job_id='ml/a\\"\\n', rank="1", pod_namespace="ml", pod_uid="u"),
        series(job_id="1234", rank="1", pod_namespace="slurm", pod_uid="u"),
        'rankscope_gpu_allocation_info{job_id="ml/a",rank="1",uuid="g",pod_namespace="x"} 1\n',
    ],
)
def test_every_series_of_a_refused_rank_goes_and_no_other(line):
    of_rank = 'rankscope_rank_alive{{job_id="ml/a",rank="{}"}} {}\n'
    page = OWN + line + of_rank.format(0, 1) + "rankscope_memory_total_bytes 5\n"
    found = believed(from_pages([Page("n", 1.0, page)], job_reports.READS))
    seen, notes = found.observed, found.notes
    assert [one.labels["rank"] for one in seen.named("rankscope_rank_info")] == ["0"]
    assert list(seen.named("rankscope_gpu_allocation_info")) == []
    assert [one.last for one in seen.named("rankscope_rank_alive")] == [1]
    assert [one.last for one in seen.named("rankscope_memory_total_bytes")] == [5]
    assert len(notes) == 1


def test_a_rank_that_its_own_job_has_on_the_same_node_keeps_its_counters():
    page = OWN + series(job_id="ml/a", rank="0", pod_namespace="x", pod_uid="v")
    page += 'rankscope_rank_alive{job_id="ml/a",rank="0"} 1\n'
    seen = believed(from_pages([Page("n", 1.0, page)], job_reports.READS)).observed
    assert [one.labels["pod_namespace"] for one in seen.named("rankscope_rank_info")] == ["ml"]
    assert [one.last for one in seen.named("rankscope_rank_alive")] == [1]


def test_series_of_a_job_are_not_taken_from_nodes_where_only_strangers_speak_for_it():
    failed = 'rankscope_job_pods{job_id="ml/a",phase="Failed"} 1\n'
    stranger = series(job_id="ml/a", rank="1", pod_namespace="x", pod_uid="v")
    pages = [Page("own", 1.0, OWN + failed), Page("other", 1.0, stranger + failed)]
    pages.append(Page("third", 1.0, failed))
    seen = believed(from_pages(pages, job_reports.READS)).observed
    assert [one.node for one in seen.named("rankscope_job_pods")] == ["own", "third"]


def test_where_nobody_lies_nothing_is_copied():
    seen = from_pages([Page("n", 1.0, OWN)], job_reports.READS)
    assert believed(seen).observed is seen
    assert (believed(seen).ranks, believed(seen).notes) == (frozenset(), {})


def test_of_two_agents_that_say_they_are_of_one_node_neither_is_believed():
    with Node("n0", range(4), "t") as own, Node("n1", range(4, 8), "t") as hit:
        with Node("n1", range(4, 8), "t", SLOW) as liar:
            found, reports = told(own, hit, liar)
            assert set(found.poll.agents) == {"n0"}
            assert found.silent == 2
            assert set(found.jobs[0].records["node"]) == {"n0"}
            assert reports["t/j"].incidents == ()
            (note,) = [one for one in reports["t/j"].unobserved if "node n1" in one]
            assert hit.url in note
            assert liar.url in note
            pages, silent = agent_pages.pages([Agent(one.url) for one in (own, hit, liar)])
            assert [page.node for page in pages] == ["n0"]
            assert silent == list(found.evidence.notes)
        found, _ = told(own, hit)
        assert set(found.poll.agents) == {"n0", "n1"}


def test_an_agent_that_is_named_twice_is_asked_once():
    with Node("n0", range(8), "t") as own:
        found, _ = told(own, own)
        assert set(found.poll.agents) == {"n0"}
        assert found.poll.failures == ()
        url = f"http://{own.url}/"
        assert [page.node for page in agent_pages.pages([Agent(own.url), Agent(url)])[0]] == ["n0"]


def test_in_a_cluster_an_agent_speaks_for_the_node_that_its_pod_is_on():
    """n1's agent says that it is n0's."""
    with Node("n0", range(4), "t", SLOW) as own, Node("n0", range(4, 8), "t", SLOW) as liar:
        known = NodeAgents({"n0": own.url, "n1": liar.url}, ["agents of node n2: a, b"])
        found, reports = told(own, liar, cluster=known)
    assert {node: agent.url for node, agent in found.poll.agents.items()} == {
        "n0": own.url,
        "n1": liar.url,
    }
    places = reports["t/j"].locations
    assert {places[rank].node for rank in range(4)} == {"n0"}
    assert {places[rank].node for rank in range(4, 8)} == {"n1"}
    by_rank = found.jobs[0].records.drop_duplicates("rank").set_index("rank")["node"]
    assert by_rank[7] == "n1"
    assert reports["t/j"].incidents[0].where.nodes == ("n1",)
    (note,) = [one for one in reports["t/j"].unobserved if "n1 calls itself n0" in one]
    assert "agents of node n2: a, b" in note


def test_64_sentences_are_said_about_what_is_refused():
    claims = [
        SimpleNamespace(job_id=f"team/j{number:03d}", namespace="other") for number in range(65)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_ownership, "_sentence", lambda job, namespace, several: job)
        found = job_ownership.notes(claims, frozenset())
    assert sum(map(len, found.values())) == 64
