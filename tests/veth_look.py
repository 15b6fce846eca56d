"""Run inside a network namespace: looks at a veth pair before and after it was mistreated.

Prints a JSON object. The sysfs that is mounted there shows this namespace's interfaces.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from pathlib import Path

from rankscope_agent.sources.netdev.collector import NetdevCollector
from rankscope_agent.sources.netdev.ethtool import Ethtool
from rankscope_agent.sources.netdev.host_links import open_host_links

SLOW_SECONDS = 10.0

FRAMES = 5
LINK_WATCH_SECONDS = 1.2  # the kernel announces changes of a carrier once a second at most
FRAME = b"\xff" * 12 + b"\x88\xb5" + bytes(1400)  # broadcast, an EtherType for experiments


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        self.now += SLOW_SECONDS
        return self.now


def ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True)


def settle() -> None:
    """Wait until both ends are up and nothing about them is left to be announced."""
    while any(
        Path(f"/sys/class/net/{end}/operstate").read_text() != "up\n" for end in ("va", "vb")
    ):
        time.sleep(0.05)
    time.sleep(LINK_WATCH_SECONDS)


def look(collector: NetdevCollector) -> dict[str, float]:
    return {f"{s.metric.name} {' '.join(s.labels)}": s.value for s in collector.collect()}


def main() -> None:
    with contextlib.suppress(OSError):  # no frames but ours
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    ip("link add va type veth peer name vb")
    ip("link set va up")
    ip("link set vb mtu 1000 up")
    settle()
    ethtool = Ethtool()
    collector = NetdevCollector(
        Path("/sys"),
        Path("/proc/self/net"),
        ethtool,
        open_host_links(),
        Clock(),
        everything=True,
    )
    ip("link add bridge type bridge")
    ip("link set va promisc on")
    ip("link set va master bridge")
    ip("link set va mtu 1400")
    ip("link set va nomaster")
    ip("link set va promisc off mtu 1500")
    ip("link del bridge")
    before = look(collector)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind(("va", 0))
        for _ in range(FRAMES):  # larger than the peer takes: dropped on the way out
            with contextlib.suppress(OSError):  # the sender is told of the drop (ENOBUFS)
                sender.send(FRAME)
    ip("link set vb down")
    time.sleep(LINK_WATCH_SECONDS)
    down = look(collector)
    ip("link set vb up")
    settle()
    after = look(collector)
    peer = socket.if_indextoname(ethtool.statistics("va")["peer_ifindex"])
    ip("link del va")
    gone = look(collector)
    ip("link add va type veth peer name vb")
    again = look(collector)
    collector.close()
    answers = {"before": before, "down": down, "after": after, "gone": gone, "again": again}
    print(json.dumps(answers | {"peer": peer}))


if __name__ == "__main__":
    main()
