"""One run of the load in Rust against one server, and what the server's process took for it."""

from __future__ import annotations

import itertools
import os
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from headrace import native
from headrace.bench.process import Usage, need_connections
from headrace.errors import InputError
from headrace.model import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.bench.figures import Figures
    from headrace.bench.server import Server

_LOOK_SECONDS: Final = 0.1
"""Between two looks at a run that goes on."""

names: Final[Iterator[str]] = (f"{os.getpid():x}{count:04x}" for count in itertools.count())
"""Of runs, none of which another has."""


@dataclass(frozen=True, slots=True)
class Driven:
    """One run.

    Attributes:
        counts: as the load counted them (`MqttLoad.finish`).
        cpu_seconds: that the server took from the first connect, or since a queue was filled, to
            the last delivery.
        resident_bytes: of the server at the end, connections open.
        grown_bytes: since before the first connect.
    """

    counts: dict[str, Any]
    cpu_seconds: float | None = None
    resident_bytes: int | None = None
    grown_bytes: int | None = None

    @classmethod
    def of(
        cls, plan: dict[str, Any], server: Server, watch: Callable[[dict[str, Any]], None]
    ) -> Self:
        """Runs a load to its end.

        Args:
            plan: what `MqttLoad` takes, but for the server.
            server: is measured.
            watch: is told the counts so far, ten times a second.

        Raises:
            InputError: the server's name or the plan makes no sense, there is no such server, or
                this process may not have so many connections.
            OSError: the machine gives no sockets.
        """
        need_connections(plan["publishers"] + plan["subscribers"] + plan["idle"])
        before = None if server.pid is None else Usage.of(server.pid)
        try:
            running = native.MqttLoad(_resolved(server), credentials=server.credentials, **plan)
        except ValueError as error:
            raise InputError(str(error)) from None
        began = after = before
        try:
            while not running.is_over():
                time.sleep(_LOOK_SECONDS)
                progress = running.progress()
                # A server gives back what connections took once they are gone.
                if server.pid is not None and progress["phase"] != "done":
                    after = Usage.of(server.pid)
                    if progress["phase"] == "filling":
                        began = after
                watch(progress)
        except BaseException:
            running.stop()
            raise
        counts = running.finish()
        if before is None or began is None or after is None:
            return cls(counts)
        return cls(
            counts,
            cpu_seconds=after.cpu_seconds - began.cpu_seconds,
            resident_bytes=after.resident_bytes,
            grown_bytes=after.resident_bytes - before.resident_bytes,
        )

    def cpu_per_million(self, count: int) -> float | None:
        """Processor time for a million of what the run has done so often."""
        return self.cpu_seconds / count * 1e6 if self.cpu_seconds and count else None


def latency_ms(latency: Mapping[str, float], prefix: str = "") -> Figures:
    """Figures of a distribution; None where nothing was timed."""
    return {
        f"{prefix}{name.replace('.', '_')}_ms": value * 1e3 if latency["count"] else None
        for name, value in latency.items()
        if name != "count"
    }


def _resolved(server: Server) -> str:
    host, port = server.address.host, server.address.port
    try:
        *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InputError(f"{server.name}: cannot find {host}: {error.strerror}") from None
    return str(Address(str(address[0]), int(address[1])))
