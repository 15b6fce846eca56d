"""Lines and files as NCCL Inspector writes them."""

from __future__ import annotations

import json

UUID = "3f2a91c0-aaaa-bbbb-cccc-0123456789ab"
PROM = f"nccl_inspector_metrics_{UUID}.prom"


def header(rank: int, nranks: int) -> dict[str, object]:
    return {"id": "0x9e2a6fc8", "comm_name": "x", "rank": rank, "n_ranks": nranks, "nnodes": 2}


def line(rank: int = 3, nranks: int = 16, **changed: object) -> str:
    """Return a line as Inspector's format v4.2 has it."""
    perf = {
        "coll": "AllReduce",
        "coll_algo": "RING",
        "coll_proto": "SIMPLE",
        "coll_sn": 1407,
        "coll_msg_size_bytes": 17179869184,
        "coll_exec_time_us": 61974,
        "coll_timing_source": "kernel_gpu",
        "coll_algobw_gbs": 277.21,
        "coll_busbw_gbs": 519.77,
    }
    metadata = {
        "inspector_output_format_version": "v4.2",
        "git_rev": "",
        "rec_mechanism": "nccl_profiler_interface",
        "dump_timestamp_us": 1795274145000000,
        "hostname": "gpu-00",
        "pid": 4711,
    }
    document = {"header": header(rank, nranks), "metadata": metadata, "coll_perf": perf | changed}
    return json.dumps(document) + "\n"


def send(rank: int, nranks: int) -> str:
    perf = {
        "p2p": "Send",
        "p2p_sn": 1,
        "p2p_peer": 4,
        "p2p_msg_size_bytes": 1000,
        "p2p_exec_time_us": 250,
        "p2p_timing_source": "collective_cpu",
    }
    return json.dumps({"header": header(rank, nranks), "metadata": {}, "p2p_perf": perf}) + "\n"


def prom(metric: str, value: object, op: str = "AllReduce", **labels: object) -> str:
    known = {
        "version": "v5.1",
        "slurm_job_id": "unknown",
        "node": "gpu-00",
        "gpu": "GPU0",
        "comm_name": "unknown",
        "n_nodes": 2,
        "nranks": 16,
        ("p2p_operation" if "p2p" in metric else "collective"): op,
        "message_size": "4-5MB",
        "algo_proto": "RING_SIMPLE",
    } | labels
    pairs = ",".join(f'{name}="{text}"' for name, text in known.items())
    return f"{metric}{{{pairs}}} {value}\n"
