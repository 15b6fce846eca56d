"""Which names jobs may have, and which of them a pod may give."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_json import pod
from rankscope_agent.contract.job_names import (
    JobNameError,
    is_job_id,
    is_name,
    namespace_of,
    within,
    without_step,
)
from rankscope_agent.sources.pods.job_naming import job_of_pod, refusal
from rankscope_agent.sources.pods.launchers import membership
from rankscope_agent.sources.pods.records import parse_pod

MAX_JOB_ID = 320
MAX_NAME = 253

HARMLESS = set(string.ascii_letters + string.digits + "._/:@-")


@pytest.mark.parametrize(
    ("name", "job"),
    [
        ("1234.1", "1234"),
        ("slurm/1234.12", "slurm/1234"),
        ("1234", "1234"),
        ("ml/llm.1", "ml/llm.1"),
        ("ml/llm-7.v2", "ml/llm-7.v2"),
        ("ml/1.5/7.1", "ml/1.5/7.1"),
    ],
)
def test_only_steps_of_slurm_jobs_are_part_of_another_job(name, job):
    assert without_step(name) == job


@pytest.mark.parametrize(
    ("told", "called"),
    [
        ("run-7", "ml/run-7"),
        ("ml/run-7", "ml/run-7"),
        ("ml/a/b", "ml/a/b"),
        ("local/0123abcd", "ml/local/0123abcd"),
        ("x" * MAX_NAME, "ml/" + "x" * MAX_NAME),
    ],
)
def test_a_pod_may_choose_a_name_within_its_namespace(told, called):
    assert within("ml", told) == called


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("other/llm", "namespace"),
        ("mlx/llm", "namespace"),
        ("../ml/llm", "namespace"),
        ("/llm", "namespace"),
        ("local/0123abcd/x", "namespace"),
        ("ml/", "form"),
        ("", "form"),
        ("ml/../llm", "form"),
        ("-run", "form"),
        ('a"} 1\nrankscope_up{b="', "form"),
        ("a\x1b[31m", "form"),
        ("a b", "form"),
        ("ümlaut", "form"),
        ("x" * (MAX_NAME + 1), "form"),
    ],
)
def test_any_other_name_is_refused_with_its_reason(told, reason):
    with pytest.raises(JobNameError) as caught:
        within("ml", told)
    assert caught.value.reason == reason
    assert str(caught.value).isprintable()


@given(st.text() | st.text(alphabet="ml/a.\n\"'", max_size=12))
def test_whatever_a_pod_says_the_name_is_harmless_and_in_its_namespace(told):
    try:
        named = within("ml", told)
    except JobNameError:
        return
    assert named.startswith("ml/")
    assert namespace_of(named) == "ml"
    assert set(named) <= HARMLESS
    assert len(named) <= MAX_JOB_ID
    assert is_job_id(named)


def test_names_of_jobs_outside_of_kubernetes_are_names_too():
    assert all(map(is_job_id, ("1234", "local/0123abcd", "run-7", "a" * MAX_JOB_ID)))
    assert not any(map(is_job_id, ("", "a b", 'a"', "a\n", "é", "a" * (MAX_JOB_ID + 1))))
    assert (namespace_of("1234"), namespace_of("ml/a/b")) == ("", "ml")


OWNED = ("kubeflow.org/v1", "PyTorchJob", "llm")


@pytest.mark.parametrize(
    ("specification", "called", "refused"),
    [
        ({"owner": OWNED}, "ml/llm", None),
        ({"owner": OWNED, "env": {"RANKSCOPE_JOB_ID": "mine"}}, "ml/mine", None),
        ({"owner": OWNED, "env": {"RANKSCOPE_JOB_ID": "ml/mine"}}, "ml/mine", None),
        ({"owner": OWNED, "env": {"RANKSCOPE_JOB_ID": "prod/llm"}}, "ml/llm", "namespace"),
        ({"owner": OWNED, "env": {"RANKSCOPE_JOB_ID": 'x"\ny'}}, "ml/llm", "form"),
        ({"owner": ("x.org/v1", "Thing", 'a"\nb')}, "ml/w0", "form"),
        ({"owner": ("batch/v1", "Job", "x" * 256)}, "ml/w0", "form"),
        ({"annotations": {"jobset.sigs.k8s.io/jobset-name": "x" * 3000}}, "ml/w0", "form"),
        ({"annotations": {"kueue.x-k8s.io/queue-name": "q\x1b[2J"}}, "ml/w0", "form"),
    ],
)
def test_a_pods_job_has_the_name_that_it_may_have(specification, called, refused):
    found = parse_pod(pod("w0", "ml", **specification))
    member = membership(found)
    assert job_of_pod(found, member) == called
    error = refusal(found)
    assert (error and error.reason) == refused
    texts = (member.job, member.kind, member.queue, member.gang, member.parent, member.role)
    assert all(not text or is_name(text) for text in texts)


def test_a_kind_that_is_none_is_unknown():
    member = membership(parse_pod(pod(owner=("x.org/v1", 'K"ind\n', "llm"))))
    assert (member.job, member.kind) == ("llm", "unknown")
