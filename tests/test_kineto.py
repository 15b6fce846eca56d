import numpy as np
import pytest

from kineto_traces import (
    COMPUTE_STREAM,
    GLOO_THREAD,
    LOADER_THREAD,
    NCCL_KERNEL,
    NCCL_STREAM,
    Trace,
    device_trace,
)
from rankscope_analyzers.profiles import kineto_spans
from rankscope_analyzers.profiles.kineto import rank_steps, writer
from rankscope_analyzers.profiles.kineto_spans import TraceError, TraceSpans


def steps_of(trace):
    spans = TraceSpans()
    for member, value in trace.document().items():
        for item in value if member == "traceEvents" else [value]:
            spans.take(member, item)
    return rank_steps(spans, writer(spans.about))


def gloo_step():
    """A step of 100 ms on gloo: 10 ms loading, 40 ms of operators, 30 ms waiting, 20 ms Python."""
    trace = Trace(backend="gloo")
    trace.add("user_annotation", "ProfilerStep#3", 0, 100_000)
    trace.add("user_annotation", "Optimizer.step#SGD.step", 99_000, 500)
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    trace.add("user_annotation", loader, 0, 10_000)
    trace.add("cpu_op", "aten::addmm", 10_000, 40_000)
    trace.add("user_annotation", "gloo:all_reduce", 45_000, 35_000, GLOO_THREAD)
    trace.add("cpu_op", "c10d::allreduce_", 45_000, 100)
    return trace


def test_device_time_is_told_apart_by_kernels_although_the_host_runs_ahead():
    steps = steps_of(device_trace(1, compute=30_000.0, peers=50_000.0))
    assert steps.timing_source == "kernel"
    np.testing.assert_array_equal(steps.numbers, np.arange(24))
    np.testing.assert_allclose(steps.step[1:], 0.053)
    np.testing.assert_allclose(steps.compute, 0.030)
    np.testing.assert_allclose(steps.sync, 0.023)
    np.testing.assert_allclose(steps.data, 0.0)


def test_steps_start_at_the_unix_time_of_the_trace():
    steps = steps_of(device_trace(0))
    np.testing.assert_allclose(steps.starts[0], 1_700_000_000, rtol=0, atol=1e-3)
    np.testing.assert_allclose(np.diff(steps.starts)[1:], 0.053, atol=1e-4)


def test_loading_that_the_device_does_not_notice_is_no_data_time():
    trace = device_trace(0)
    loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    trace.add("user_annotation", loader, 20_000.0, 5_000.0)
    np.testing.assert_allclose(steps_of(trace).data, 0.0)


def test_loading_while_the_device_is_idle_is_data_time():
    trace = Trace()
    for step, begin in ((1, 0.0), (2, 100_000.0)):
        trace.add("user_annotation", f"ProfilerStep#{step}", begin, 99_000.0)
        trace.add("user_annotation", "enumerate(DataLoader)#x.__next__", begin + 100, 60_000.0)
        trace.add("kernel", "gemm", begin + 61_000, 20_000.0, COMPUTE_STREAM)
        trace.add("kernel", NCCL_KERNEL, begin + 81_000, 2_000.0, NCCL_STREAM)
        trace.add("gpu_user_annotation", f"ProfilerStep#{step}", begin + 61_000, 22_000.0)
    steps = steps_of(trace)
    np.testing.assert_allclose(steps.data, 0.060)
    np.testing.assert_allclose(steps.step, [0.083, 0.100])
    np.testing.assert_allclose(steps.sync, 0.002)


@pytest.mark.parametrize(
    "name",
    [
        NCCL_KERNEL,
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "void ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymDevArgs)",
        "ncclSymkDevKernel_ReduceScatter_LL_sum_f32(ncclSymkDevWorkArgs4K)",
        "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>()",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>()",
        "void deep_ep::internode::dispatch<false, 8, false>(int4*, float*)",
    ],
)
def test_kernels_of_every_nccl_are_exchange_and_not_compute(name):
    trace = Trace()
    trace.add("user_annotation", "ProfilerStep#1", 0, 100_000)
    trace.add("kernel", "gemm", 0, 10_000, COMPUTE_STREAM)
    trace.add("kernel", name, 10_000, 90_000, NCCL_STREAM)
    steps = steps_of(trace)
    np.testing.assert_allclose((steps.compute[0], steps.sync[0]), (0.010, 0.090))


def test_kernels_without_any_exchange_leave_sync_unknown_not_zero():
    trace = Trace(world_size=2)
    trace.add("user_annotation", "ProfilerStep#1", 0, 100_000)
    trace.add("kernel", "gemm", 0, 10_000, COMPUTE_STREAM)
    assert np.isnan(steps_of(trace).sync).all()
    trace.world_size = 1
    np.testing.assert_array_equal(steps_of(trace).sync, [0.0])


def test_a_gloo_step_is_divided_by_what_its_thread_does_meanwhile():
    steps = steps_of(gloo_step())
    assert steps.timing_source == "wall"
    parts = (steps.data[0], steps.sync[0], steps.compute[0], steps.step[0])
    np.testing.assert_allclose(parts, (0.010, 0.030, 0.060, 0.100))


def test_operators_of_other_threads_do_not_hide_a_wait():
    trace = gloo_step()
    trace.add("cpu_op", "aten::stack", 50_000, 30_000, LOADER_THREAD)
    np.testing.assert_allclose(steps_of(trace).sync, 0.030)


@pytest.mark.parametrize(
    "frame",
    [
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
        "torch::autograd::AccumulateGrad",
        "c10d::barrier",
        "AddmmBackward0",
    ],
)
def test_frames_around_a_wait_do_not_make_it_compute(frame):
    trace = gloo_step()
    trace.add("cpu_op", frame, 40_000, 50_000)
    np.testing.assert_allclose(steps_of(trace).sync, 0.030)


def test_small_gaps_between_operators_are_no_waiting():
    trace = gloo_step()
    for begin in range(50_000, 80_000, 500):
        trace.add("cpu_op", "aten::mul", begin, 450)
    np.testing.assert_allclose(steps_of(trace).sync, 0.0, atol=1e-4)


def test_an_operator_that_waits_is_sync():
    trace = gloo_step()
    trace.add("cpu_op", "_c10d_functional::wait_tensor", 85_000, 5_000)
    np.testing.assert_allclose(steps_of(trace).sync, 0.035)


def test_host_times_of_an_nccl_job_do_not_pass_for_compute():
    trace = gloo_step()
    trace.backend = "cpu:gloo,cuda:nccl"
    steps = steps_of(trace)
    assert steps.timing_source == "none"
    assert np.isnan(steps.compute).all()
    assert np.isnan(steps.sync).all()
    np.testing.assert_allclose((steps.data[0], steps.step[0]), (0.010, 0.100))


def test_without_annotations_steps_end_with_the_first_seen_optimizer():
    trace = Trace(backend="gloo")
    for end in (10_000, 40_000, 90_000):
        trace.add("user_annotation", "Optimizer.step#Adam.step", end - 1_000, 1_000)
        trace.add("user_annotation", "Optimizer.step#SGD.step", end + 100, 500)
        trace.add("user_annotation", "gloo:all_reduce", end - 6_000, 4_000, GLOO_THREAD)
    steps = steps_of(trace)
    np.testing.assert_array_equal(steps.numbers, [1, 2])
    np.testing.assert_allclose(steps.step, [0.030, 0.050])
    np.testing.assert_allclose(steps.sync, 0.004)


def test_a_last_step_that_the_end_of_profiling_cut_off_is_left_out():
    trace = gloo_step()
    trace.add("user_annotation", "ProfilerStep#4", 100_000, 7_000)
    np.testing.assert_array_equal(steps_of(trace).numbers, [3])


def test_a_trace_without_steps_has_none():
    assert len(steps_of(Trace()).numbers) == 0


@pytest.mark.parametrize(
    "event",
    [
        None,
        [],
        {"ph": "X"},
        {"ph": "X", "name": 3, "ts": 0, "dur": 1},
        {"ph": "X", "name": "ProfilerStep#9", "ts": "0", "dur": 1},
        {"ph": "X", "name": "ProfilerStep#9", "ts": 0, "dur": -1},
        {"ph": "X", "name": "ProfilerStep#9", "ts": float("nan"), "dur": 1},
        {"ph": "X", "name": "ProfilerStep#9", "ts": 0, "dur": True},
        {"ph": "X", "name": "ProfilerStep#9", "ts": 10**400, "dur": 1},
        {"ph": "X", "name": "ProfilerStep#" + "9" * 40, "ts": 0, "dur": 1},
        {"ph": "B", "name": "ProfilerStep#9", "ts": 0, "dur": 1},
    ],
)
def test_an_event_that_cannot_be_is_passed_over(event):
    trace = gloo_step()
    trace.events.append(event)
    np.testing.assert_array_equal(steps_of(trace).numbers, [3])


def test_more_spans_than_are_kept_are_refused(monkeypatch):
    monkeypatch.setattr(kineto_spans, "MAXIMUM_SPANS", 50)
    with pytest.raises(TraceError, match="holds more than 50 spans; trace fewer steps"):
        steps_of(device_trace(0))


@pytest.mark.parametrize(
    ("about", "complaint"),
    [
        ({"distributedInfo": {"rank": -1}}, r"distributedInfo\.rank -1, expected 0 to"),
        ({"distributedInfo": {"rank": "0"}}, r"distributedInfo\.rank '0'"),
        ({"distributedInfo": {"rank": 1 << 40}}, r"distributedInfo\.rank"),
        ({"distributedInfo": {"world_size": 0}}, r"distributedInfo\.world_size 0"),
        ({"baseTimeNanoseconds": 1e300}, "baseTimeNanoseconds"),
    ],
)
def test_a_writer_that_cannot_be_is_refused(about, complaint):
    with pytest.raises(TraceError, match=complaint):
        writer(about)


def test_a_host_name_cannot_carry_markup_into_a_report():
    assert writer({"host_name": "[red]x\n"}).node == "_red_x_"
    assert writer({"host_name": 3}).node == "unknown"
    assert len(writer({"host_name": "x" * 10_000}).node) == 256
