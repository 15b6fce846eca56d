"""Adapters' drivers, firmware and health reporters, as devlink gives them."""

from __future__ import annotations

import contextlib
import struct

from netlink_messages import attribute, board, nest, text
from rankscope_agent.sources.netdev.devlink import (
    Adapter,
    Devlink,
    Reporter,
    adapters_of,
    reporters_of,
)


def test_an_adapter_says_its_driver_and_the_firmware_that_runs():
    running = nest(101, text(103, "fw.version"), text(104, "28.39.1002"))
    stored = nest(102, text(103, "fw.version"), text(104, "28.40.1000"))
    said = board(text(98, "mlx5_core"), running, stored)
    assert list(adapters_of([said])) == [Adapter("0000:3b:00.0", "mlx5_core", "28.39.1002")]
    assert list(adapters_of([board(bus="auxiliary")])) == []
    assert list(adapters_of([board()])) == [Adapter("0000:3b:00.0", "", "")]


def reporter(name: str, state: int, errors: int):
    count = attribute(117, struct.pack("=Q", errors))
    return board(nest(114, text(115, name), attribute(116, bytes([state])), count))


def test_health_reporters_say_whether_they_are_in_error_and_how_often_they_were():
    assert list(reporters_of([reporter("fw_fatal", 1, 3), board()])) == [
        Reporter("0000:3b:00.0", "fw_fatal", False, 3)
    ]


def test_a_kernel_without_adapters_has_none_or_refuses():
    asked = Devlink()
    with contextlib.suppress(OSError):
        assert all(adapter.pci == pci for pci in asked.devices() for adapter in asked.adapters(pci))
    asked.close()


def test_the_kernel_is_asked_for_the_firmware_of_one_adapter(monkeypatch):
    sent = []

    async def bound(self):
        pass

    async def request(self, message, msg_type, msg_flags):
        sent.append((message, msg_flags))
        return answers()

    async def answers():
        yield board(text(98, "mlx5_core"))

    asked = Devlink()
    monkeypatch.setattr(Devlink.async_class, "bind", bound)
    monkeypatch.setattr(Devlink.async_class, "prid", 20)
    monkeypatch.setattr(Devlink.async_class, "nlm_request", request)
    assert list(asked.devices()) == ["0000:3b:00.0"]
    assert [adapter.driver for adapter in asked.adapters("0000:3b:00.0")] == ["mlx5_core"]
    asked.close()
    (listed, all_of_them), (of_one, one) = sent
    assert (listed["cmd"], listed["attrs"], all_of_them) == (1, [], 0x301)  # ..._GET, NLM_F_DUMP
    assert (of_one["cmd"], one) == (51, 1)  # DEVLINK_CMD_INFO_GET, NLM_F_REQUEST
    of_one.encode()
    assert text(1, "pci") + text(2, "0000:3b:00.0") in bytes(of_one.data)
