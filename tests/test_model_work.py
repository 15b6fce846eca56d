"""How much a job computes, by what its nodes say, and which part of its GPUs that is."""

import math
from itertools import pairwise

import numpy as np
import pytest

from rankscope_agent.contract.metrics import job_logs, job_work, summary, training
from rankscope_analyzers.goodput.model_work import by_job, work
from rankscope_analyzers.goodput.peak_flops import MODELS, peak
from rankscope_analyzers.intake.observed import Series, gathered

NOW = 1000.0
TIMES = np.arange(760.0, NOW + 1, 30.0)
H100 = "NVIDIA H100 80GB HBM3"
POD = {"pod_namespace": "llm", "pod_name": "llm-0"}


def series(node, metric, values, **labels):
    values = np.broadcast_to(np.asarray(values, dtype=float), TIMES.shape)
    return Series(node, metric.name, labels, TIMES, values)


def ranks(nodes=2, each=4, world=8, groups=1):
    return [
        series(
            f"n{rank // each}",
            training.RANK_INFO,
            1,
            job_id="llm/job",
            rank=str(rank),
            world_size=str(world),
            dp_group=str(rank % groups) if groups > 1 else "",
        )
        for rank in range(nodes * each)
    ]


def counter(metric, rate, nodes=2):
    grown = rate * (TIMES - TIMES[0])
    return [series(f"n{n}", metric, grown, job_id="llm/job") for n in range(nodes)]


def gauge(metric, value, nodes=2, **labels):
    return [series(f"n{n}", metric, value, job_id="llm/job", **labels) for n in range(nodes)]


def computed(*several, models=(H100,) * 8, gpus=8, now=NOW):
    observed = gathered([one for some in several for one in some])
    return work(by_job(observed)["llm/job"], models, gpus, now)


def test_a_token_takes_six_flops_for_each_parameter_of_all_nodes():
    found = computed(
        ranks(), counter(job_work.JOB_TOKENS, 5e4), gauge(job_work.JOB_PARAMETERS, 3.5e9)
    )
    assert found.by == "parameters"
    assert found.flops == pytest.approx(1e5 * 6 * 7e9)
    assert found.mfu == pytest.approx(1e5 * 6 * 7e9 / (8 * 989.5e12))
    assert found.dtype == "bf16"


def test_ranks_that_share_a_pipeline_or_tensor_group_count_one_token_once():
    parts = counter(job_work.JOB_TOKENS, 5e4), gauge(job_work.JOB_PARAMETERS, 3.5e9)
    found = computed(ranks(groups=4), *parts)
    assert found.flops == pytest.approx(1e5 / 4 * 6 * 7e9)


def test_what_the_program_says_wins_over_parameters_and_samples():
    found = computed(
        ranks(),
        counter(job_work.JOB_TOKENS, 5e4),
        gauge(job_work.JOB_PARAMETERS, 3.5e9),
        gauge(job_work.JOB_MODEL_FLOPS, 2e10, per="token"),
        gauge(job_work.JOB_MODEL_FLOPS, 1e14, per="sample"),
        counter(training.JOB_SAMPLES, 10),
        gauge(job_work.JOB_NUMBERS_INFO, 1, dtype="fp8"),
    )
    assert (found.by, found.dtype) == ("program", "fp8")
    assert found.mfu == pytest.approx(1e5 * 2e10 / (8 * 1979e12))


def test_a_model_without_tokens_has_flops_of_its_samples():
    found = computed(
        ranks(),
        counter(training.JOB_SAMPLES, 100),
        gauge(job_work.JOB_MODEL_FLOPS, 2.4e10, per="sample"),
    )
    assert (found.by, found.flops) == ("program", pytest.approx(200 * 2.4e10))


@pytest.mark.parametrize("lack", ["a node's ranks", "a node's parameters", "tokens"])
def test_of_a_model_that_is_seen_in_part_nothing_is_said(lack):
    nodes = {name: 1 if lack == name else 2 for name in ("a node's ranks", "a node's parameters")}
    tokens = () if lack == "tokens" else counter(job_work.JOB_TOKENS, 5e4)
    parts = gauge(job_work.JOB_PARAMETERS, 3.5e9, nodes["a node's parameters"])
    assert computed(ranks(nodes["a node's ranks"]), tokens, parts) is None


def test_what_the_log_says_counts_where_there_is_nothing_else():
    job = [series("n0", summary.POD_JOB_INFO, 1, job_id="llm/job", **POD)]
    printed = [series("n0", job_logs.JOB_LOG_GPU_FLOPS, 4.5e14, framework="megatron", **POD)]
    found = computed(ranks(), job, printed)
    assert (found.by, found.flops) == ("log", 8 * 4.5e14)
    assert found.mfu == pytest.approx(450 / 989.5)
    tokens = [series("n0", job_logs.JOB_LOG_TOKENS_RATE, 2e5, framework="megatron", **POD)]
    found = computed(ranks(), job, printed, tokens, gauge(job_work.JOB_PARAMETERS, 3.5e9))
    assert (found.by, found.flops) == ("parameters", pytest.approx(2e5 * 6 * 7e9))


def test_idle_gpus_that_a_job_holds_count_as_what_it_could_use():
    parts = counter(job_work.JOB_TOKENS, 5e4), gauge(job_work.JOB_MODEL_FLOPS, 1e10, per="token")
    assert computed(ranks(), *parts, gpus=16).mfu == computed(ranks(), *parts).mfu / 2


def test_a_job_that_stands_still_computes_nothing_and_an_old_page_says_nothing():
    parts = counter(job_work.JOB_TOKENS, 0.0), gauge(job_work.JOB_MODEL_FLOPS, 1e10, per="token")
    assert computed(ranks(), *parts).mfu == 0.0
    assert computed(ranks(), *parts, now=NOW + 119).flops == 0.0
    assert computed(ranks(), *parts, now=NOW + 121) is None


def test_without_the_peak_of_each_gpu_there_are_flops_and_no_utilisation():
    parts = counter(job_work.JOB_TOKENS, 5e4), gauge(job_work.JOB_MODEL_FLOPS, 1e10, per="token")
    for models in ((), (H100,) * 7 + ("",), ("NVIDIA RTX Unheard",) * 8):
        found = computed(ranks(), *parts, models=models)
        assert (found.flops, found.mfu) == (pytest.approx(1e15), None)
    mixed = computed(ranks(), *parts, models=(H100,) * 4 + ("NVIDIA A100-SXM4-80GB",) * 4)
    assert mixed.mfu == pytest.approx(1e15 / (4 * (989.5e12 + 312e12)))


# As the makers' data sheets print them: (tf32, bf16, fp8, fp4, fp32), of sparse matrices but for
# fp32. `-` is a type that the GPU has not, or that the sheet leaves out.
SPARSE = """
NVIDIA GB300             2500    5000   10000  -      80
NVIDIA B300 SXM6 AC      2250    4500   9000   -      75
NVIDIA GB200             2500    5000   10000  20000  80
NVIDIA B200              2250    4500   9000   18000  75
NVIDIA B100              1750    3500   7000   14000  60
NVIDIA H200 NVL          835     1671   3341   -      60
NVIDIA H200              989     1979   3958   -      67
NVIDIA GH200 480GB       989     1979   3958   -      67
NVIDIA H100 PCIe         756     1513   3026   -      51
NVIDIA H100 NVL          835     1671   3341   -      60
NVIDIA H100 80GB HBM3    989     1979   3958   -      67
NVIDIA H800 PCIe         756     1513   3026   -      51
NVIDIA H800              989     1979   3958   -      67
NVIDIA H20               148     296    592    -      44
NVIDIA A100-SXM4-80GB    312     624    -      -      19.5
NVIDIA A800-SXM4-80GB    312     624    -      -      19.5
NVIDIA A40               149.6   299.4  -      -      37.4
NVIDIA A30               164     330    -      -      10.3
NVIDIA A10               125     250    -      -      31.2
NVIDIA L40S              366     724.1  1466   -      91.6
NVIDIA L40               181     362.1  724    -      90.5
NVIDIA L4                120     242    485    -      30.3
"""
TYPES = ("tf32", "bf16", "fp8", "fp4", "fp32")


@pytest.mark.parametrize("row", SPARSE.strip().splitlines())
def test_peaks_are_those_of_data_sheets_for_dense_matrices(row):
    *name, tf32, bf16, fp8, fp4, fp32 = row.split()
    for dtype, printed in zip(TYPES, (tf32, bf16, fp8, fp4, fp32), strict=True):
        found = peak(" ".join(name), dtype)
        if printed == "-":
            assert found is None, dtype
        else:
            assert found == (float(printed) * 1e12 / (1 if dtype == "fp32" else 2), dtype)
    assert peak(" ".join(name), "fp16")[0] == peak(" ".join(name))[0] == float(bf16) * 1e12 / 2


@pytest.mark.parametrize(
    ("name", "dtype", "tera"),
    [
        ("Tesla V100S-PCIE-32GB", "", 130),
        ("Tesla V100S-PCIE-32GB", "fp32", 16.4),
        ("Tesla V100-PCIE-16GB", "fp16", 112),
        ("Tesla V100-PCIE-16GB", "fp32", 14),
        ("Tesla V100-SXM2-32GB", "", 125),
        ("Tesla V100-SXM2-32GB", "fp32", 15.7),
        ("Tesla T4", "", 65),
        ("Tesla T4", "fp32", 8.1),
    ],
)
def test_peaks_of_gpus_without_sparse_matrices_are_those_of_data_sheets(name, dtype, tera):
    assert peak(name, dtype)[0] == tera * 1e12


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("NVIDIA A100-SXM4-80GB", "fp8"),
        ("Tesla V100-SXM2-32GB", "bf16"),
        ("NVIDIA A10G", ""),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", ""),
        ("", ""),
    ],
)
def test_what_the_table_does_not_have_has_no_peak(name, dtype):
    assert peak(name, dtype) is None


def test_of_each_gpu_numbers_of_fewer_bits_are_no_slower():
    order = ("fp32", "tf32", "bf16", "fp8", "fp4")
    for model in MODELS:
        rates = [model.tera[one] for one in order if one in model.tera]
        assert all(slow <= fast for slow, fast in pairwise(rates)), model.name
        assert model.source
        assert math.isfinite(sum(rates))
