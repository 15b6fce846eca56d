"""State that an older version saved: a job of which something is unknown begins anew, alone."""

from __future__ import annotations

import json

import pytest

from test_followed_jobs import SLOW_FOR_EVER, looks, running
from test_watch_memory import Process, names, started

NEWER = ("data_mean", "data_noise", "waits", "waits_noise")
"""Fields of baselines that older versions did not have."""

JOBS = ("a", "b", "c")


@pytest.fixture(scope="module")
def shown():
    """What looks return while a rank is slow, the first ones before a baseline is known."""
    return list(looks(running(SLOW_FOR_EVER), 60.0))


@pytest.fixture(scope="module")
def saved(tmp_path_factory, shown):
    """The file of a watch that has followed three jobs up to the last but one look."""
    path = tmp_path_factory.mktemp("saved") / "state"
    watch = Process(path)
    for records in shown[:-1]:
        for name in JOBS:
            watch.look((), 1.0, records, name)
    watch.save()
    return path.read_bytes()


def without_newer(value):
    """Return a part of a document as a version wrote it whose baselines had fewer fields."""
    if isinstance(value, list):
        return [without_newer(one) for one in value]
    if not isinstance(value, dict):
        return value
    old = {name: without_newer(one) for name, one in value.items()}
    if str(value.get("object", "")).endswith(".view.Baseline"):
        assert set(NEWER) <= set(value["fields"])
        old["fields"] = {name: one for name, one in old["fields"].items() if name not in NEWER}
    return old


def older(document, of):
    """Return a document in which the baselines of some jobs are those of an older version."""
    lines = []
    for line in document.splitlines():
        part = json.loads(line)
        old = part.get("part") == "job" and part.get("name") in of
        lines.append(json.dumps(without_newer(part)).encode() if old else line)
    assert lines != document.splitlines()
    return b"\n".join(lines)


def test_a_baseline_of_an_older_version_costs_no_other_job_its_own(saved, shown, tmp_path):
    (tmp_path / "all").write_bytes(saved)
    (tmp_path / "old").write_bytes(older(saved, "c"))
    whole, watch = started(tmp_path / "all"), started(tmp_path / "old")
    assert (names(watch), len(watch.said)) == (["a", "b"], 1)
    assert "job 'c' starts again: Baseline has the fields" in watch.said[0]
    for name in ("a", "b"):
        expected = whole.look((), 2.0, shown[-1], name)
        assert watch.look((), 2.0, shown[-1], name) == expected
        assert expected.incidents
    assert [one.ranks for one in watch.look((), 2.0, shown[-1], "c").incidents] == [(13,)]


def test_if_all_baselines_are_those_of_an_older_version_all_jobs_are_judged_anew(
    saved, shown, tmp_path
):
    (tmp_path / "state").write_bytes(older(saved, JOBS))
    watch = started(tmp_path / "state")
    assert (names(watch), len(watch.said)) == ([], len(JOBS))
    for name in JOBS:
        watch.look((), 2.0, shown[-1], name)
    watch.save()
    again = started(tmp_path / "state")
    assert (sorted(names(again)), again.said) == (list(JOBS), [])
