"""Texts of sysfs read right, and what is no value kept out."""

import pytest

from rankscope_agent.contract.metrics import rdma as metrics
from rankscope_agent.sources.rdma.link_flaps import LinkFlaps
from rankscope_agent.sources.rdma.names import rule_for
from rankscope_agent.sources.rdma.values import (
    Rate,
    label_text,
    parse_count,
    parse_rate,
    parse_state,
)


@pytest.mark.parametrize(
    ("raw", "count"),
    [
        (b"0\n", 0),
        (b"18446744073709551614\n", 2**64 - 2),
        (b"12 \n", 12),
        (b"18446744073709551615\n", None),  # all bits set: a failed read, not a count
        (b"18446744073709551616\n", None),
        (b"-1\n", None),
        (b"+1\n", None),
        (b"1_000\n", None),
        (b"0x10\n", None),
        (b"N/A (no PMA)\n", None),
        (b"", None),
        (b"\xff\xfe", None),
        ("٣".encode(), None),
    ],
)
def test_a_counter_is_a_count_of_at_most_64_bits_or_nothing(raw, count):
    assert parse_count(raw) == count


@pytest.mark.parametrize(
    ("text", "state"),
    [("4: ACTIVE", 4), ("5: LinkUp", 5), ("4: ACTIVE\n", 4), ("ACTIVE", None), ("", None)],
)
def test_a_state_is_the_number_before_the_colon(text, state):
    assert parse_state(text) == state


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("400 Gb/sec (4X NDR)", Rate(50e9, "4X", "NDR")),
        ("100 Gb/sec (4X EDR)\n", Rate(12.5e9, "4X", "EDR")),
        ("2.5 Gb/sec (1X)", Rate(0.3125e9, "1X", "")),
        ("25 Gb/sec", Rate(3.125e9, "", "")),
        ("0 GB/sec", Rate(0.0, "", "")),
        ("fast", None),
        ("", None),
        ("4000000000 Gb/sec", None),
    ],
)
def test_a_rate_is_in_bytes_per_second(text, rate):
    assert parse_rate(text) == rate


def test_odd_texts_become_no_labels():
    assert label_text(" InfiniBand\n") == "InfiniBand"
    assert label_text("a" * 200) == ""
    assert label_text('x"{}') == ""


def test_words_become_bytes_and_names_of_any_driver_one_series():
    assert rule_for("counters", "port_xmit_data").factor == 4
    for name in ("np_cnp_sent", "cnpSent", "tx_cnp_pkts"):
        rule = rule_for("hw_counters", name)
        assert (rule.metric, rule.labels, rule.always) == (metrics.CONGESTION, ("cnp_sent",), True)


def test_names_no_table_knows_keep_their_drivers_name():
    assert rule_for("hw_counters", "new_counter").labels == ("new_counter",)
    assert rule_for("hw_counters", "send_bytes").metric is metrics.HW_BYTES
    assert rule_for("hw_counters", "active_qps").metric is metrics.HW_RESOURCES
    assert not rule_for("hw_counters", "new_counter").always


@pytest.mark.parametrize("name", ["a b", "", "1st", "x" * 65, 'a"', "é"])
def test_names_that_fit_no_label_have_no_rule(name):
    assert rule_for("hw_counters", name) is None


def test_a_flap_is_a_link_that_leaves_the_active_state():
    watch = LinkFlaps()
    assert watch.observe(False, None) == 0
    assert watch.observe(True, None) == 0
    assert watch.observe(False, None) == 1
    assert watch.observe(False, None) == 1
    assert watch.observe(True, None) == 1


def test_flaps_go_on_counting_where_the_ports_own_counter_has_stopped():
    watch = LinkFlaps()
    watch.observe(True, 255)
    watch.observe(False, 255)
    assert watch.observe(True, 255) == 1


def test_a_flap_too_short_to_be_seen_counts_by_the_ports_counter():
    watch = LinkFlaps()
    watch.observe(True, 3)
    assert watch.observe(True, 5) == 2


def test_a_flap_that_is_seen_and_counted_is_one_flap():
    watch = LinkFlaps()
    watch.observe(True, 3)
    watch.observe(False, 3)
    assert watch.observe(True, 4) == 1


def test_a_reset_counter_does_not_take_flaps_back():
    watch = LinkFlaps()
    watch.observe(True, 10)
    watch.observe(True, 12)
    assert watch.observe(True, 1) == 3


def test_an_unknown_state_is_no_flap():
    watch = LinkFlaps()
    watch.observe(True, 1)
    watch.observe(None, None)
    assert watch.observe(True, 1) == 0
