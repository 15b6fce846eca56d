"""Firmware and health of adapters through the generic netlink family "devlink".

pyroute2 provides the socket and the table of attributes; the requests for information and for
health reporters are defined here. Layouts: the kernel's include/uapi/linux/devlink.h. Imported only
in the node's network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink import NLM_F_DUMP, NLM_F_REQUEST
from pyroute2.netlink.devlink import DEVLINK_NAMES, AsyncDevlinkSocket, DevlinkSocket, devlinkcmd

from rankscope_agent.sources.netdev.netlink import refused_as_os_error

PCI_BUS = "pci"
FIRMWARE = ("fw", "fw.version", "fw.mgmt")
"""Drivers' names for the version of their firmware, the most general one first (the kernel's
Documentation/networking/devlink/devlink-info.rst)."""

HEALTHY = 0  # DEVLINK_HEALTH_REPORTER_STATE_HEALTHY


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter's driver and firmware; empty if it does not report them."""

    pci: str
    driver: str
    firmware: str


@dataclass(frozen=True, slots=True)
class Reporter:
    """One of an adapter's health reporters, such as `fw_fatal` and `tx` of mlx5.

    Args:
        healthy: false from an error until recovery.
        errors: number of errors reported since the driver was loaded.
    """

    pci: str
    name: str
    healthy: bool
    errors: int


class _AsyncDevlink(AsyncDevlinkSocket):
    module_err_level = "debug"  # a kernel without devlink is not an error

    async def ask(self, command: str, flags: int, attributes: Sequence[tuple[str, str]]) -> Any:
        message = devlinkcmd()
        message["cmd"] = DEVLINK_NAMES[command]
        message["attrs"].extend(attributes)
        await self.bind()
        return await self.nlm_request(message, msg_type=self.prid, msg_flags=NLM_F_REQUEST | flags)


class Devlink(DevlinkSocket):
    """Queries adapters: lists are the kernel's own, an adapter's firmware is its driver's answer.

    The kernel ends a list of firmware at the first driver that fails (its
    `devlink_nl_info_get_dumpit`), so each adapter is asked for its own. Every method raises OSError
    if the kernel lacks the family, or it or the driver refuses.
    """

    async_class = _AsyncDevlink

    def devices(self) -> Iterator[str]:
        """Yield the addresses of adapters on PCI buses."""
        return devices_of(self._ask("DEVLINK_CMD_GET", NLM_F_DUMP))

    def adapters(self, pci: str) -> Iterator[Adapter]:
        """Yield what the adapter at an address says of itself."""
        of = (("DEVLINK_ATTR_BUS_NAME", PCI_BUS), ("DEVLINK_ATTR_DEV_NAME", pci))
        return adapters_of(self._ask("DEVLINK_CMD_INFO_GET", 0, of))

    def reporters(self) -> Iterator[Reporter]:
        """Yield the health reporters of adapters on PCI buses."""
        return reporters_of(self._ask("DEVLINK_CMD_HEALTH_REPORTER_GET", NLM_F_DUMP))

    def _ask(
        self, command: str, flags: int, attributes: Sequence[tuple[str, str]] = ()
    ) -> Iterable[Any]:
        with refused_as_os_error():
            asked = self.asyncore.ask
            answers: Iterable[Any] = self._run_sync_cleanup(asked, command, flags, attributes)
        return answers


def devices_of(messages: Iterable[Any]) -> Iterator[str]:
    """Yield the addresses of adapters on PCI buses from answers to DEVLINK_CMD_GET."""
    for message in messages:
        if message.get("DEVLINK_ATTR_BUS_NAME") == PCI_BUS:
            yield str(message.get("DEVLINK_ATTR_DEV_NAME") or "")


def adapters_of(messages: Iterable[Any]) -> Iterator[Adapter]:
    """Yield the adapters on PCI buses from answers to DEVLINK_CMD_INFO_GET."""
    for message in messages:
        if message.get("DEVLINK_ATTR_BUS_NAME") == PCI_BUS:
            running = {
                value.get("DEVLINK_ATTR_INFO_VERSION_NAME"): value.get(
                    "DEVLINK_ATTR_INFO_VERSION_VALUE"
                )
                for name, value in message["attrs"]
                if name == "DEVLINK_ATTR_INFO_VERSION_RUNNING"
            }
            firmware = next((running[name] for name in FIRMWARE if running.get(name)), "")
            yield Adapter(
                str(message.get("DEVLINK_ATTR_DEV_NAME") or ""),
                str(message.get("DEVLINK_ATTR_INFO_DRIVER_NAME") or ""),
                str(firmware),
            )


def reporters_of(messages: Iterable[Any]) -> Iterator[Reporter]:
    """Yield the reporters of adapters on PCI buses from DEVLINK_CMD_HEALTH_REPORTER_GET."""
    for message in messages:
        reporter = message.get("DEVLINK_ATTR_HEALTH_REPORTER")
        if reporter is not None and message.get("DEVLINK_ATTR_BUS_NAME") == PCI_BUS:
            yield Reporter(
                str(message.get("DEVLINK_ATTR_DEV_NAME") or ""),
                str(reporter.get("DEVLINK_ATTR_HEALTH_REPORTER_NAME") or ""),
                reporter.get("DEVLINK_ATTR_HEALTH_REPORTER_STATE") == HEALTHY,
                int(reporter.get("DEVLINK_ATTR_HEALTH_REPORTER_ERR_COUNT") or 0),
            )
