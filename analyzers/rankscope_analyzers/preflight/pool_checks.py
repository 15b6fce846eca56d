"""Checks of the nodes that a job is to run on; `docs/preflight.md` describes each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rankscope_agent.contract.metrics import gpus, host, kernel_log, netdev, rdma
from rankscope_analyzers.preflight.job import NotApplicableError, UndecidedError
from rankscope_analyzers.preflight.outcome import Outcome, failed, passed, warned
from rankscope_analyzers.preflight.pool import PORT_ACTIVE, Pool, alike, gpu_of, none_of, where
from rankscope_analyzers.text.name_lists import listed, named

if TYPE_CHECKING:
    from rankscope_analyzers.intake.observed import Series

WHOLE = 0.99
"""Fraction of the possible PCI bandwidth from which on a link is whole: the ratio is rounded."""

CLOCK_ERROR_SECONDS = 0.1
"""Clocks further apart make the order of events on two nodes uncertain; NTP achieves 0.01 s."""

BAD_XIDS = frozenset(("error", "fatal"))
NO_ACTION = frozenset(("none", ""))
REPLACE = "drain the node, reset the GPU, and run the vendor's diagnostics; rankscope gpus"


def agents(pool: Pool) -> Outcome:
    """Check that every node's agent was read."""
    if pool.silent:
        raise UndecidedError(listed(pool.silent))
    return passed(f"{named(pool.nodes, 'node')}")


def gpu_kind(pool: Pool) -> Outcome:
    """Check that all nodes have the same GPUs, as many of each."""
    found = pool.read(gpus.GPU_INFO, "GPUs")
    kinds = {node: _counted(several) for node, several in found.items()}
    return alike(
        kinds, "GPUs", "a job runs at the pace of its slowest GPU: choose one kind", hard=True
    )


def _counted(several: Sequence[Series]) -> str:
    models = Counter(one.labels.get("model") or "of unknown model" for one in several)
    return ", ".join(f"{count} x {model}" for model, count in sorted(models.items()))


def driver(pool: Pool) -> Outcome:
    """Check that all nodes have one driver."""
    found = pool.read(gpus.GPU_INFO, "GPUs")
    if not all(one.labels.get("driver") for several in found.values() for one in several):
        raise UndecidedError("the driver's version is unknown on some nodes")
    versions = {
        node: ", ".join(sorted({one.labels["driver"] for one in several}))
        for node, several in found.items()
    }
    return alike(versions, "driver", "install one driver on all nodes of the pool", hard=False)


def gpu_state(pool: Pool) -> Outcome:
    """Check that the driver reaches every GPU and requests no action."""
    lost = where(pool.of(gpus.GPU_LOST), lambda one: one.last > 0)
    lost += where(pool.of(gpus.GPU_UNRESPONSIVE), lambda one: one.last > 0)
    asked = where(
        pool.of(gpus.GPU_RECOVERY_ACTION),
        lambda one: one.last > 0 and one.labels.get("action", "").lower() not in NO_ACTION,
    )
    seen = pool.read(gpus.GPU_INFO, "GPUs")
    count = sum(map(len, seen.values()))
    if not lost and not asked:
        pool.need_any((gpus.GPU_LOST, gpus.GPU_UNRESPONSIVE), "whether its GPUs answer")
    return none_of(
        [*lost, *asked],
        f"{count} GPUs answer",
        "lost, or needs a reset",
        "GPUs that answer",
        REPLACE,
    )


def memory_rows(pool: Pool) -> Outcome:
    """Check that no GPU's memory waits for a repair or is beyond repair."""
    pool.read(gpus.GPU_INFO, "GPUs")
    metrics = (gpus.GPU_REMAP_FAILURE, gpus.GPU_REMAP_PENDING, gpus.GPU_RETIRED_PENDING)
    found = [pool.of(metric) for metric in metrics]
    bad = [place for one in found for place in where(one, lambda series: series.last > 0)]
    if not bad:
        pool.need_any(metrics, "the state of memory rows")
    return none_of(bad, "no rows to be remapped", "rows to be remapped", "none", REPLACE)


def memory_errors(pool: Pool) -> Outcome:
    """Check that no GPU's memory lost data, now or before, as ECC counts it."""
    pool.read(gpus.GPU_INFO, "GPUs")
    worn = where(pool.of(gpus.GPU_SRAM_THRESHOLD), lambda one: one.last > 0)
    lost = {
        scope: where(pool.of(gpus.GPU_ECC_ERRORS), lambda one, s=scope: _is_lost(one, s))  # type: ignore[misc]
        for scope in ("volatile", "aggregate")
    }
    expected = "no uncorrected errors"
    if worn or lost["volatile"]:
        seen = "uncorrected errors since the driver was loaded, or more than the vendor allows"
        return none_of([*worn, *lost["volatile"]], "", seen, expected, REPLACE)
    if lost["aggregate"]:
        remedy = "check whether they recur: rankscope gpus"
        seen = "uncorrected errors at some time"
        return none_of(lost["aggregate"], "", seen, expected, remedy, hard=False)
    pool.need_any((gpus.GPU_ECC_ERRORS,), "what ECC counts")
    return passed("no uncorrected errors")


def _is_lost(series: Series, scope: str) -> bool:
    labels = series.labels
    return (labels.get("kind"), labels.get("scope")) == ("uncorrected", scope) and series.last > 0


def xids(pool: Pool) -> Outcome:
    """Check that the kernel reported no serious Xid or SXid recently."""
    recent = where(
        pool.of(kernel_log.XID_LAST),
        lambda one: one.labels.get("severity") in BAD_XIDS and _is_recent(pool, one),
        lambda one: f"Xid {one.labels.get('xid', '')}, {gpu_of(one)}",
    )
    recent += where(
        pool.of(kernel_log.SXID_LAST),
        lambda one: one.labels.get("severity") in BAD_XIDS and _is_recent(pool, one),
        lambda one: f"SXid {one.labels.get('sxid', '')} of node {one.node}",
    )
    if not recent:
        logs = pool.of(kernel_log.KERNEL_LOG_INFO)
        blind = [node for node in pool.nodes if node not in logs]
        if blind:
            raise UndecidedError(f"the kernel log of {named(blind, 'node')} is not read")
    return none_of(
        recent,
        "none was reported",
        "reported lately",
        "no errors",
        "rankscope xids shows what to do",
    )


def _is_recent(pool: Pool, series: Series) -> bool:
    return pool.since_unix_seconds <= series.last


def pcie(pool: Pool) -> Outcome:
    """Check that every GPU and adapter has all of its PCIe lanes."""
    widest = {
        (one.node, one.labels.get("uuid")): one.last
        for one in pool.observed.of(gpus.GPU_PCIE_WIDTH_MAX)
    }
    narrow = where(
        pool.of(gpus.GPU_PCIE_WIDTH),
        lambda one: one.last < widest.get((one.node, one.labels.get("uuid")), 0),
    )
    adapters = pool.of(netdev.PCI_LINK_RATIO)
    narrow += where(
        adapters,
        lambda one: one.last < WHOLE,
        lambda one: f"adapter {one.labels.get('pci', '')} of node {one.node}",
    )
    if not widest and not adapters:
        raise NotApplicableError("no node shows a GPU's or an adapter's link")
    if not narrow and pool.of(gpus.GPU_INFO):
        pool.need_any((gpus.GPU_PCIE_WIDTH_MAX,), "how wide the links of its GPUs are")
    remedy = "reseat the card or riser, and check the slot's setting in the firmware"
    return none_of(narrow, "all links are whole", "below its width or speed", "all lanes", remedy)


def rdma_ports(pool: Pool) -> Outcome:
    """Check that all nodes have equally many RDMA ports, and that they are up."""
    gone = where(
        pool.of(rdma.DEVICE_LOST),
        lambda one: one.last > 0,
        lambda one: f"{one.labels.get('device', '')} of {one.node}",
    )
    if gone:
        remedy = "power cycle the node; if it stays away, replace the adapter"
        return none_of(gone, "", "gone while the agent was running", "all devices", remedy)
    found = pool.links(rdma.PORT_STATE, "RDMA ports")
    down = where(
        found,
        lambda one: one.last < PORT_ACTIVE,
        lambda one: f"{one.labels.get('device', '')}/{one.labels.get('port', '')} of {one.node}",
    )
    if down:
        remedy = "check cable and switch port"
        return none_of(down, "", "not active", "all ports active", remedy)
    counts = {node: len(several) for node, several in found.items()}
    return alike(counts, "number of RDMA ports", "choose nodes with the same adapters", hard=True)


def port_rate(pool: Pool) -> Outcome:
    """Check that all RDMA ports have the same rate."""
    found = pool.links(rdma.PORT_RATE, "rates of RDMA ports")
    rates = {
        node: " and ".join(sorted({f"{one.last * 8 / 1e9:.0f} Gbit/s" for one in several}))
        for node, several in found.items()
    }
    remedy = "a link with a lower rate has a bad cable or transceiver"
    return alike(rates, "port rate", remedy, hard=True)


def peer_memory(pool: Pool) -> Outcome:
    """Check that adapters can reach the memory of GPUs on every node."""
    ways = pool.read(rdma.GPUDIRECT, "ways for adapters to access GPU memory")
    by_node = {
        node: {one.labels.get("way") for one in several if one.last > 0}
        for node, several in ways.items()
    }
    complete = {node: len(several) > 1 for node, several in ways.items()}
    unsure = [node for node, found in by_node.items() if not found and not complete[node]]
    none = sorted(node for node, found in by_node.items() if not found and complete[node])
    expected, remedy = "nvidia_peermem loaded", "load nvidia_peermem: modprobe nvidia_peermem"
    if none:
        seen = f"neither nvidia_peermem nor DMA-BUF on {named(none, 'node')}"
        return failed(f"{seen}: traffic goes through the host's memory", expected, remedy)
    if unsure:
        why = f"{named(sorted(unsure), 'node')} {_does(unsure)} not have nvidia_peermem"
        raise UndecidedError(f"{why}, and whether DMA-BUF replaces it is unknown")
    by_dma_buf = sorted(node for node, found in by_node.items() if "peer_memory" not in found)
    if by_dma_buf:
        seen = f"{named(by_dma_buf, 'node')} {_does(by_dma_buf)} not have nvidia_peermem"
        return warned(
            f"{seen}; DMA-BUF is likely, with the open driver and a kernel that supports it",
            f"{expected}, or GDRDMA in NCCL's log",
            "verify this once the job runs: rankscope verify --transport gpudirect",
        )
    return passed(f"nvidia_peermem is loaded on {named(sorted(by_node), 'node')}")


def _does(nodes: Sequence[str]) -> str:
    return "does" if len(nodes) == 1 else "do"


def firmware(pool: Pool) -> Outcome:
    """Check that adapters of one kind have one firmware."""
    found = pool.links(rdma.DEVICE_INFO, "RDMA devices")
    versions: dict[str, object] = {
        node: ", ".join(
            sorted(
                {f"{one.labels.get('board_id', '')} {one.labels.get('firmware', '')}".strip()
                 for one in several}
            )
        )
        for node, several in found.items()
    }  # fmt: skip
    return alike(versions, "adapter firmware", "update the odd nodes", hard=False)


def clocks(pool: Pool) -> Outcome:
    """Check that every node's clock is synchronised."""
    found = pool.read(host.CLOCK_SYNCHRONIZED, "state of the clock")
    loose = where(found, lambda one: one.last < 1, lambda one: f"node {one.node}")
    loose += where(
        pool.of(host.CLOCK_MAX_ERROR),
        lambda one: one.last > CLOCK_ERROR_SECONDS,
        lambda one: f"node {one.node}",
    )
    expected = f"a time daemon, and an error of {CLOCK_ERROR_SECONDS:g} s at most"
    return none_of(
        loose, "all clocks are synchronised", "not synchronised", expected,
        "start chrony or ntpd on them", hard=False,
    )  # fmt: skip
