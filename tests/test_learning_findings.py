"""What a report says of losses, of what a restart changed, and of input and memory."""

from __future__ import annotations

import pytest

from faulty_series import (
    JOB,
    NODES,
    NOW,
    ODD,
    VIEW,
    Reading,
    befell,
    observed,
    of_odd_rank,
    restarted,
)
from rankscope_agent.contract.metrics import reported, training
from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.layers import learning


def said(*readings: Reading) -> dict[str, Finding]:
    found = list(learning.findings(observed(*readings), VIEW))
    kinds = {one.kind: one for one in found}
    assert len(kinds) == len(found)
    return kinds


NOT_FINITE = befell("loss_not_finite")


def test_a_loss_that_is_not_finite_now_is_active_and_one_that_is_again_is_over():
    active = said(NOT_FINITE)["loss_not_finite"]
    assert (active.where.ranks, active.until_unix_seconds) == ((ODD,), None)
    assert active.summary.endswith(" and is not finite now")
    over = said(NOT_FINITE, of_odd_rank(reported.LOSS, 2.5))["loss_not_finite"]
    assert over.until_unix_seconds == NOW - 300
    assert over.summary.endswith(", and is finite again")


def test_a_loss_that_only_older_pages_show_is_not_finite_again():
    labels = f'job_id="{JOB}",rank="{ODD}"'
    event = f'{reported.TRAINING_EVENT.name}{{{labels},event="loss_not_finite"}}'
    finite, not_finite = f"{reported.LOSS.name}{{{labels}}} 2.5\n", f"{event} {NOW - 40}\n"

    def said_after(*pages: str) -> Finding:
        read = [Page(NODES[1], NOW - 60 + 30 * at, text) for at, text in enumerate(pages)]
        (found,) = learning.findings(from_pages(read, learning.READS), VIEW)
        return found

    assert said_after(finite, not_finite).until_unix_seconds is None
    assert said_after(finite, not_finite, not_finite + finite).until_unix_seconds == NOW - 40


def of_rank(metric, rank: int, value: float, **labels: str) -> Reading:
    return Reading(metric, {"job_id": JOB, "rank": str(rank), **labels}, value)


def not_finite_in(rank: int, step: int, shards: int, *names: int) -> list[Reading]:
    """Return what an agent says of a rank whose loss is NaN since a step."""
    return [
        of_rank(reported.TRAINING_EVENT, rank, NOW - 300, event="loss_not_finite"),
        of_rank(reported.NONFINITE_LOSS_STEP, rank, step),
        of_rank(reported.NONFINITE_LOSS_SHARDS, rank, shards),
        *(
            of_rank(reported.NONFINITE_LOSS_SHARD, rank, name, position=str(number))
            for number, name in enumerate(names, 1)
        ),
    ]


def test_a_loss_that_is_not_finite_is_linked_to_what_the_first_rank_read():
    others = [*not_finite_in(1, 121, 1, 0xAAAA), *not_finite_in(2, 121, 1, 0xBBBB)]
    said_of = said(*others, *not_finite_in(5, 120, 2, 0x1F, 0xCBF43926))["loss_not_finite"]
    assert said_of.where.ranks == (1, 2, 5)
    assert "it began in rank 5 after step 120, which read 2 files of the dataset" in said_of.summary
    assert "explain dataset MANIFEST --read 0000001f,cbf43926`" in said_of.summary


def test_a_loss_is_linked_to_no_file_where_too_many_or_none_were_said():
    many = said(*not_finite_in(5, 120, 5))["loss_not_finite"].summary
    assert many.endswith("which read 5 files of the dataset, too many to link it to one")
    none = said(*not_finite_in(5, 120, 0))["loss_not_finite"].summary
    assert none.endswith("; it began in rank 5 after step 120")


@pytest.mark.parametrize(("files", "named"), [(8, True), (9, False)])
def test_eight_files_are_few_enough_to_link_a_loss_to_them(files, named):
    summary = said(*not_finite_in(5, 120, files, *range(files)))["loss_not_finite"].summary
    assert ("--read 00000000,00000001," in summary) is named
    assert summary.endswith("too many to link it to one") is not named


@pytest.mark.parametrize(
    ("level", "lowest", "is_told"),
    [(4.0, 2.0, False), (4.01, 2.0, True), (4.01, 0.0, False), (-1.0, -4.0, False)],
)
def test_a_loss_at_more_than_twice_its_lowest_diverges(level, lowest, is_told):
    readings = of_odd_rank(reported.LOSS_LEVEL, level), of_odd_rank(reported.LOSS_LOWEST, lowest)
    assert ("loss_diverging" in said(*readings)) is is_told


@pytest.mark.parametrize(("level", "is_told"), [(3.0, False), (3.01, True)])
def test_a_loss_half_as_high_again_as_before_a_restart_has_jumped(level, is_told):
    readings = (
        of_odd_rank(reported.LOSS_LEVEL, level),
        of_odd_rank(reported.LOSS_BEFORE_RESTART, 2.0),
    )
    assert ("loss_jump" in said(*readings)) is is_told


@pytest.mark.parametrize(
    ("rate", "ranks", "is_told"),
    [
        (1.5, 1.0, False), (1.51, 1.0, True), (0.67, 1.0, False), (0.66, 1.0, True),
        (1.1, 0.75, False), (1.11, 0.75, True), (0.9, 0.75, True),
    ],
)  # fmt: skip
def test_a_learning_rate_counts_more_strictly_where_ranks_changed(rate, ranks, is_told):
    assert ("learning_rate_changed" in said(*restarted(learning_rate=rate, world_size=ranks))) is (
        is_told
    )


def test_a_global_batch_that_ranks_left_smaller_is_told_with_the_learning_rate():
    found = said(*restarted(world_size=0.75, batch_samples=1.0, learning_rate=1.0))
    assert set(found) == {"batch_changed"}
    assert found["batch_changed"].summary == (
        "the global batch is 0.75 times what it was before the restart, with 0.75 times the ranks;"
        " the learning rate is as before"
    )
    scaled = said(*restarted(world_size=0.75, batch_samples=1.0, learning_rate=0.75))
    assert set(scaled) == {"batch_changed", "learning_rate_changed"}
    assert "learning rate" not in scaled["batch_changed"].summary


def test_larger_batches_of_fewer_ranks_make_the_same_global_batch():
    assert said(*restarted(world_size=0.5, batch_samples=2.0, learning_rate=1.0)) == {}


def test_what_a_restart_changed_six_hours_ago_is_no_news():
    ratio = of_odd_rank(reported.RESTART_RATIO, 0.1, quantity="learning_rate")
    for ago, kinds in ((6 * 3600 - 1, {"learning_rate_changed"}), (6 * 3600, set())):
        event = of_odd_rank(reported.TRAINING_EVENT, NOW - ago, event="restarted")
        assert set(said(event, ratio)) == kinds
    assert said(ratio) == {}


@pytest.mark.parametrize("kind", ["loader_worker_died", "cuda_out_of_memory"])
def test_what_a_program_survives_is_over(kind):
    assert said(befell(kind))[kind].until_unix_seconds is None
    survived = said(befell(kind), of_odd_rank(training.LAST_STEP_TIMESTAMP, NOW - 1))[kind]
    assert survived.until_unix_seconds == NOW - 1
    assert survived.summary.endswith(", and trained on")
