from rankscope_analyzers.intake.environment_skew import RankEnvironment, differences


def ranks(*environments, job="ml/llm"):
    return [RankEnvironment(job, number, "n", env) for number, env in enumerate(environments)]


def test_equal_ranks_differ_in_nothing():
    assert differences(ranks({"NCCL_NET": "IB"}, {"NCCL_NET": "IB"}, {"NCCL_NET": "IB"})) == []


def test_the_odd_one_out_is_named_with_its_value():
    same = {"NCCL_SOCKET_IFNAME": "eth0"}
    (found,) = differences(ranks(same, same, {"NCCL_SOCKET_IFNAME": "eth1"}, same))
    assert found.values == (("eth0", (0, 1, 3)), ("eth1", (2,)))
    assert found.weight == "fail"
    assert found.summary == ("NCCL_SOCKET_IFNAME is 'eth0' on 3 of 4 ranks, but 'eth1' on rank 2")


def test_a_variable_that_ranks_lack_is_a_difference():
    (found,) = differences(ranks({"NCCL_IB_HCA": "mlx5"}, {}, {}))
    assert found.values == ((None, (1, 2)), ("mlx5", (0,)))
    assert "not set on 2 of 3 ranks" in found.summary


def test_what_only_changes_the_log_is_a_warning_and_comes_last():
    found = differences(ranks({"NCCL_DEBUG": "INFO", "NCCL_NET": "IB"}, {}))
    assert [(item.variable, item.weight) for item in found] == [
        ("NCCL_NET", "fail"),
        ("NCCL_DEBUG", "warn"),
    ]


def test_what_is_meant_to_differ_is_not_reported():
    assert differences(ranks({"NCCL_HOSTID": "a"}, {"NCCL_HOSTID": "b"})) == []


def test_jobs_are_not_compared_with_one_another():
    one, two = ranks({"NCCL_NET": "IB"}, job="a"), ranks({"NCCL_NET": "Socket"}, job="b")
    assert differences([*one, *two]) == []


def test_many_ranks_are_counted_and_not_all_named():
    (found,) = differences(ranks(*[{}, {}, {"NCCL_NET": "IB"}] * 40))
    assert found.summary.endswith("and 32 more")
