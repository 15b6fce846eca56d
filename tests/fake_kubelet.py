"""A kubelet's device API behind a unix socket: a real gRPC server, its answers made here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc


def field(number: int, value: bytes | str) -> bytes:
    """Encode a string, bytes or embedded message."""
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def devices(resource: str, *ids: str) -> bytes:
    topology = field(3, field(1, number_field(1, 1)))
    return field(2, field(1, resource) + b"".join(field(2, name) for name in ids) + topology)


def claim(driver: str, pool: str, device: str, *cdi: str) -> bytes:
    names = b"".join(field(1, field(1, name)) for name in cdi)
    resource = names + field(2, driver) + field(3, pool) + field(4, device)
    return field(5, field(1, "claim-a") + field(2, "ml") + field(4, resource))


def pod_resources(namespace: str, name: str, *parts: bytes, container: str = "main") -> bytes:
    """One pod of one container; cpu ids and a field of the future stand beside its devices."""
    inside = field(1, container) + b"".join(parts) + field(3, b"\x00\x01") + field(99, "new")
    return field(1, field(1, name) + field(2, namespace) + field(3, inside))


class FakeKubelet:
    """Serves `answer` on List; an exception class of gRPC's codes fails instead."""

    def __init__(self, path: Path, answer: bytes = b"") -> None:
        self.answer = answer
        self.failure: tuple[grpc.StatusCode, str] | None = None
        self.hang = threading.Event()
        self.hanging = False
        self.calls = 0
        self._pool = ThreadPoolExecutor(2)
        options: Sequence[tuple[str, Any]] = [("grpc.max_send_message_length", -1)]
        self._server = grpc.server(self._pool, options=options)
        handler = grpc.method_handlers_generic_handler(
            "v1.PodResourcesLister", {"List": self._method()}
        )
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"unix:{path}")
        self._server.start()

    def close(self) -> None:
        self.hang.set()
        self._server.stop(0).wait()
        self._pool.shutdown()

    def _method(self) -> grpc.RpcMethodHandler[bytes, bytes]:
        identity: Callable[[bytes], bytes] = bytes
        return grpc.unary_unary_rpc_method_handler(self._list, identity, identity)

    def _list(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.calls += 1
        assert request == b""
        if self.hanging:
            self.hang.wait(30)
        if self.failure:
            context.abort(*self.failure)
        return self.answer
