"""What connections and metadata cost a broker: asked over bare sockets."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

from headrace.bench.kafka.raw import RawConnection
from headrace.bench.process import Usage, need_connections
from headrace.client.errors import ClientError, check
from headrace.wire.kafka import apis
from headrace.wire.kafka.messages import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.bench.figures import Figures
    from headrace.bench.kafka.load import Load
    from headrace.bench.server import Server
    from headrace.client.login import Login

PAUSE_SECONDS: Final = 0.001
"""Between two small requests beside those that are measured."""


def quantiles_ms(seconds: Sequence[float], prefix: str = "") -> Figures:
    """Median, 99th percentile and longest of some times."""
    if not seconds:
        return {f"{prefix}{name}_ms": None for name in ("p50", "p99", "max")}
    ordered = sorted(seconds)
    last = len(ordered) - 1
    found = {"p50": last // 2, "p99": -(-last * 99 // 100), "max": last}
    return {f"{prefix}{name}_ms": 1e3 * ordered[at] for name, at in found.items()}


def connections(server: Server, login: Login | None, load: Load) -> Figures:
    """Opens many connections that do nothing, and sees whether one more is served.

    Raises:
        ClientError: the broker refuses one.
        InputError: this process may not open so many.
    """
    need_connections(load.connections)
    before = None if server.pid is None else Usage.of(server.pid)
    with contextlib.ExitStack() as stack:
        opened: list[RawConnection] = []
        started = time.perf_counter()
        opened.extend(
            stack.enter_context(RawConnection(server.address, login))
            for _ in range(load.connections)
        )
        seconds = time.perf_counter() - started
        after = None if server.pid is None else Usage.of(server.pid)
        started = time.perf_counter()
        with RawConnection(server.address, login) as one_more:
            one_more.call(apis.METADATA, MetadataRequest(topics=[]))
        served = time.perf_counter() - started
        answers = [_answer_seconds(each) for each in opened]
    times = [answer for answer in answers if answer is not None]
    grown = None
    if before is not None and after is not None:
        grown = (after.resident_bytes - before.resident_bytes) / load.connections
    return {
        "connections": load.connections,
        "connects_per_second": load.connections / seconds,
        "bytes_per_connection": grown,
        "one_more_ms": 1e3 * served,
        **quantiles_ms(times, "answer_"),
        "disconnected": load.connections - len(times),
    }


def _answer_seconds(connection: RawConnection) -> float | None:
    """How long a connection that was idle waits for an answer; None where it is gone."""
    try:
        _, seconds = connection.timed(apis.API_VERSIONS, ApiVersionsRequest())
    except ClientError:
        return None
    return seconds


def metadata(server: Server, login: Login | None, topics: Sequence[str], load: Load) -> Figures:
    """Asks for topics of many partitions, again and again, and small things beside.

    Raises:
        ClientError: the broker refuses, or does not know them.
    """
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in topics])
    beside = _Beside(server, login)
    times = []
    with RawConnection(server.address, login) as connection:
        found = connection.call(apis.METADATA, asked).topics
        for topic in found:
            check(topic.error_code, f"metadata of {topic.name}")
        with beside:
            end = time.perf_counter() + load.duration
            while time.perf_counter() < end:
                frame, seconds = connection.timed(apis.METADATA, asked)
                times.append(seconds)
    return {
        "partitions": sum(len(topic.partitions) for topic in found),
        "answers_per_second": len(times) / load.duration,
        "answer_bytes": len(frame),
        **quantiles_ms(times, "answer_"),
        **quantiles_ms(beside.seconds, "beside_"),
    }


class _Beside:
    """A client that asks for something small, while another asks for something large."""

    def __init__(self, server: Server, login: Login | None) -> None:
        self.seconds: list[float] = []
        self._connection = RawConnection(server.address, login)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="beside", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._connection.close()

    def _ask(self) -> None:
        while not self._over.wait(PAUSE_SECONDS):
            seconds = _answer_seconds(self._connection)
            if seconds is None:
                return
            self.seconds.append(seconds)
