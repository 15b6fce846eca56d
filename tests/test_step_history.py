"""Which step records an agent is asked for again, and what becomes of those it told before."""

import pytest

from rankscope_analyzers.intake.step_history import StepHistory, step_answer

REREAD_POLLS = 20

COLUMNS = ["job_id", "rank", "step", "t_start_unix_seconds", "step_seconds"]
URL = "http://n1:9877"


class Node:
    """An agent whose ranks step once a second; `at` says until when it has recorded."""

    def __init__(self, url=URL, ranks=(0, 1), job="a/b"):
        self.url, self.ranks, self.job = url, ranks, job
        self.begin = dict.fromkeys(ranks, 0)
        self.end = dict.fromkeys(ranks, 10)

    def identities(self, alive=True):
        return [{"job_id": self.job, "rank": rank, "alive": alive} for rank in self.ranks]

    def answer(self, since):
        rows = [
            [self.job, rank, step, float(step), 1.0]
            for rank in self.ranks
            for step in range(self.begin[rank], self.end[rank])
            if step >= since
        ]
        return step_answer(self.url, since, {"columns": COLUMNS, "rows": rows})

    def told(self, history, oldest=0.0, alive=True):
        """Ask as a source does; return since when it was asked, and all that is known."""
        since = history.since(self.url, self.identities(alive), oldest)
        return since, steps_of(history.add([self.answer(since)], oldest))


def steps_of(records):
    return {
        (row.job_id, row.rank): sorted(records[records["rank"] == row.rank]["step"])
        for row in records.itertuples()
    }


def whole(node, begin=0):
    return {(node.job, rank): list(range(begin, node.end[rank])) for rank in node.ranks}


@pytest.fixture
def history():
    return StepHistory()


def first_look(history, *nodes):
    """Look for the first time, and often enough that no agent's turn to be read anew is near."""
    for node in nodes:
        node.told(history)
        while history._agents[node.url].polls % REREAD_POLLS != 1:
            node.told(history)


def test_an_agent_is_asked_for_what_is_new_alone_and_nothing_is_lost_or_doubled(history):
    node = Node()
    assert node.told(history) == (0.0, whole(node))
    first_look(history, node)
    node.end = {0: 14, 1: 12}
    assert node.told(history) == (9.0, whole(node))
    node.end = {0: 20, 1: 20}
    # The rank that is behind decides: its records came after those of the other.
    assert node.told(history) == (11.0, whole(node))


def test_records_older_than_wanted_are_let_go(history):
    node = Node()
    first_look(history, node)
    node.end = {0: 20, 1: 20}
    assert node.told(history, oldest=5.0) == (9.0, whole(node, begin=5))


def test_a_rank_without_a_record_has_all_of_the_node_read(history):
    node = Node(ranks=(0,))
    first_look(history, node)
    node.ranks, node.begin, node.end = (0, 1), {0: 0, 1: 3}, {0: 12, 1: 12}
    since, found = node.told(history)
    assert since == 0.0
    assert found == {("a/b", 0): list(range(12)), ("a/b", 1): list(range(3, 12))}


def test_a_rank_that_ended_holds_nobody_up(history):
    node = Node()
    first_look(history, node)
    node.end = {0: 30, 1: 10}
    assert history.since(URL, node.identities()[:1], 0.0) == 9.0
    node.told(history)
    assert history.since(URL, node.identities()[:1], 0.0) == 29.0
    assert history.since(URL, node.identities(alive=False), 0.0) == 29.0


def test_a_clock_that_was_set_back_is_found_out_within_some_looks(history):
    node = Node()
    first_look(history, node)
    node.begin, node.end = {0: -50, 1: -50}, {0: -20, 1: -20}
    asked = [node.told(history, oldest=-100.0) for _ in range(REREAD_POLLS)]
    assert sum(since == -100.0 for since, _ in asked) == 1
    assert asked[-1][1] == whole(node, begin=-50)


def test_agents_take_turns_at_being_read_anew(history):
    nodes = [Node(url=f"http://n{number}:9877") for number in range(200)]
    history.add([node.answer(0.0) for node in nodes], 0.0)
    anew = []
    for _ in range(2 * REREAD_POLLS):
        asked = [history.since(node.url, node.identities(), 0.0) for node in nodes]
        anew.append(asked.count(0.0))
        answers = [node.answer(since) for node, since in zip(nodes, asked, strict=True)]
        history.add(answers, 0.0)
    assert sum(anew) == 2 * len(nodes)
    assert max(anew) < len(nodes) / 4


def test_records_of_a_silent_agent_wait_for_its_next_answer(history):
    one, two = Node(), Node(url="http://n2:9877", ranks=(2, 3))
    first_look(history, one, two)
    one.end = two.end = {0: 12, 1: 12, 2: 12, 3: 12}
    since = history.since(one.url, one.identities(), 0.0)
    assert set(steps_of(history.add([one.answer(since)], 0.0))) == {("a/b", 0), ("a/b", 1)}
    since = history.since(two.url, two.identities(), 0.0)
    assert since == 9.0
    assert steps_of(history.add([two.answer(since)], 0.0)) == whole(two)


def test_agents_that_are_gone_are_forgotten(history):
    one, two = Node(), Node(url="http://n2:9877", ranks=(2, 3))
    first_look(history, one, two)
    history.keep([two.url])
    assert history.since(one.url, one.identities(), 0.0) == 0.0
    assert history.newest(one.url) == {}
    assert steps_of(history.add([two.answer(9.0)], 0.0)) == whole(two)


def test_agents_of_several_versions_make_one_table(history):
    older = step_answer("n1", 0.0, {"columns": COLUMNS, "rows": [["a/b", 0, 1, 5.0, 1.0]]})
    newer = step_answer(
        "n2",
        0.0,
        {
            "columns": ["of_later", *COLUMNS, "flags"],
            "rows": [[{"any": "thing"}, "a/b", 1, 1, 5.0, 1.0, 2]],
        },
    )
    found = history.add([older, newer], 0.0)
    assert "of_later" not in found.columns
    assert found["rank"].tolist() == [0, 1]
    assert found["flags"].tolist()[1] == 2


@pytest.mark.parametrize(
    ("columns", "row", "complaint"),
    [
        (COLUMNS, ["a", 0, 1, 5.0], "does not have 5 values"),
        (COLUMNS, ["a", 0, 1, 5.0, 1.0, 1.0], "does not have 5 values"),
        (COLUMNS, {"job_id": "a"}, "does not have 5 values"),
        (COLUMNS, "abcde", "does not have 5 values"),
        (COLUMNS, ["a", 0, 1, 5.0, {}], "a value is a dict"),
        (COLUMNS, ["a", [0], 1, 5.0, 1.0], "a value is a list"),
        (COLUMNS, ["a", 0, 1, 10**400, 1.0], "a number is larger than"),
        (COLUMNS, ["a", 0, -(2**63), 5.0, 1.0], "a number is larger than"),
        (COLUMNS, ["\ud800", 0, 1, 5.0, 1.0], "surrogates not allowed"),
        (COLUMNS, [7, 0, 1, 5.0, 1.0], "name of a job is not a text"),
        (COLUMNS, [None, 0, 1, 5.0, 1.0], "name of a job is not a text"),
    ],
)
def test_what_is_no_table_of_records_is_refused(columns, row, complaint):
    with pytest.raises(ValueError, match=complaint):
        step_answer(URL, 0.0, {"columns": columns, "rows": [row]})


@pytest.mark.parametrize("start", [None, "soon", True, float("inf"), float("nan")])
def test_records_that_do_not_say_when_they_began_have_everything_read_again(history, start):
    answer = step_answer(URL, 0.0, {"columns": COLUMNS, "rows": [["a/b", 0, 1, start, 1.0]]})
    assert len(history.add([answer], 0.0)) == 1
    assert history.since(URL, [{"job_id": "a/b", "rank": 0, "alive": True}], -5.0) <= 1.0
    again = step_answer(URL, -5.0, {"columns": COLUMNS[:3], "rows": [["a/b", 0, 1]]})
    assert len(history.add([again], -5.0)) == 1


def test_more_than_was_asked_for_is_not_taken_twice(history):
    node = Node()
    first_look(history, node)
    everything = node.answer(0.0)
    found = history.add([step_answer(URL, 9.0, {"columns": COLUMNS, "rows": everything.rows})], 0.0)
    assert steps_of(found) == whole(node)


def test_no_answers_are_no_records(history):
    assert history.add([], 0.0).empty
    assert history.add([step_answer(URL, 0.0, {"columns": ["job_id"], "rows": []})], 0.0).empty
