"""Numbers that only trade cost: how much is read, searched or passed on at a time.

Whatever such a number is, within a factor of two, the same bytes go in and the same results come
out; only system calls, copies or comparisons differ. A test could only repeat the number, so they
are counted separately. A number that limits what is kept, accepted or dropped, that splits what is
analysed into blocks, or that decides when something happens is not a cost and does not belong here.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.mutants.population import Mutant

AGENT, ANALYZERS = "agent/rankscope_agent/", "analyzers/rankscope_analyzers/"

COSTS: Mapping[str, Mapping[str, str]] = {
    f"{AGENT}contract/kernel/scanner.py": {
        "DENSE": "share of lines from which equal messages are grouped; both ways find the same",
    },
    f"{AGENT}contract/log_text/framing.py": {
        "HOP_BYTES": "a text with more marks than hops is searched by the pattern instead",
    },
    f"{AGENT}contract/nccl/info_lines.py": {
        "_START_LENGTH": "bytes by which lines are looked up before they are compared as a whole",
    },
    f"{AGENT}contract/nccl/lines.py": {
        "HOP_BYTES": "past the hops the pattern goes on alone and finds the same records",
        "FIRST_HOPS": "past the hops the pattern goes on alone and finds the same records",
        "SAMPLE_BYTES": "chooses which of two letters is searched for; both find the same records",
    },
    f"{AGENT}sources/flight_recorder/worker_server.py": {
        "_CHUNK": "bytes per recv of a body whose length is known",
    },
    f"{AGENT}sources/gpus/collector_dcgm.py": {
        "CHUNK_BYTES": "bytes per read of a page; MAX_PAGE_BYTES limits the sum",
    },
    f"{AGENT}sources/nccl_log/step_lines/collectives.py": {
        "PRIME": "any modulus of that size makes the sums of different stretches differ",
    },
    f"{AGENT}sources/pods/json_items.py": {
        "READ_BYTES": "bytes per read of a list; a value that is cut off is tried again",
    },
    f"{AGENT}sources/pods/kubelet.py": {
        "_CHUNK": "bytes per recv of an answer; MAX_ANSWER limits the sum",
    },
    f"{AGENT}sources/training/cursor.py": {
        "FIRST_CHUNK": "records in the first pread of a look; those that follow read the rest",
        "MAX_CHUNK": "records per pread while catching up; the caller's limit ends a look",
    },
    f"{AGENT}sources/training/listing.py": {
        "LARGE": "names from which on an unchanged listing is kept; a new one would say the same",
    },
    f"{AGENT}web/handler.py": {
        "WRITE_BUFFER": "bytes of an answer that are collected before they are sent",
    },
    f"{AGENT}web/request_head.py": {
        "READ_BYTES": "bytes per read of a head; MAX_HEAD_BYTES limits it",
    },
    f"{ANALYZERS}checkpoints/contents.py": {
        "THREADS": "files that are looked at side by side; their order is that of their names",
    },
    f"{ANALYZERS}checkpoints/stretch.py": {
        "CHUNK_BYTES": "bytes per pread of what is hashed as a whole",
    },
    f"{ANALYZERS}intake/agent_client.py": {
        "PIECE_BYTES": "bytes per read of an answer; the caller limits the sum",
    },
    f"{ANALYZERS}intake/agent_connections.py": {
        "PIECE_BYTES": "bytes per read of a body; the request limits the sum",
    },
    f"{ANALYZERS}intake/credentials.py": {
        "ENTRIES_KEPT": "openers that are cached; one that is not is made anew",
        "CONTEXTS_KEPT": "TLS contexts that are cached; one that is not is read anew",
    },
    f"{ANALYZERS}intake/kubernetes_api.py": {
        "PIECE": "bytes per read of an answer; LARGEST_ANSWER limits the sum",
    },
    f"{ANALYZERS}intake/log_files.py": {
        "CHUNK_BYTES": "bytes per read of a log, which a scanner takes in pieces of any size",
    },
    f"{ANALYZERS}numeric/arrays.py": {
        "SPARSE": "whether values are sorted or counted; both find the same distinct ones",
    },
    f"{ANALYZERS}profiles/json_stream.py": {
        "CHUNK_CHARACTERS": "characters per read; a value that is cut off is read on",
    },
    f"{ANALYZERS}stragglers/recent_rows.py": {
        "SLACK": "rows allocated beyond those that are kept, so that they are moved up less often",
    },
    f"{ANALYZERS}stragglers/slow_kernels.py": {
        "ROUNDING_MARGIN": "windows that are looked at in full; both ways find the same ranks",
    },
    f"{ANALYZERS}steps/stored_traces.py": {
        "CHUNK_BYTES": "bytes per read of a file that is copied; MAX_FILE_BYTES limits the sum",
    },
    f"{ANALYZERS}steps/parquet.py": {
        "BUFFER_BYTES": "bytes of a column that Arrow reads from the file at once",
    },
}
"""Names by module, each with the reason why nothing but cost depends on it."""


def is_cost(mutant: Mutant) -> bool:
    """Return True if the number of a mutant only trades cost."""
    return mutant.name in COSTS.get(mutant.path, ())
