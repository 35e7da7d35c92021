"""Workloads of headrace's queues: publish, deliver, settle."""

from __future__ import annotations

import http.client
import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.bench import Server, queue
from headrace.bench.suite.peers.peer import Door, Mode
from headrace.bench.suite.workloads import Round, Workload
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.bench.suite.peers.peer import Running
    from headrace.bench.suite.workloads import Timing
    from headrace.model import Address

SOURCE: Final = "original design: queues, here over the wire and durable"
HEARD_SECONDS: Final = 5.0
"""Until a broker has read the last PUBACKs of consumers that have gone."""

ENDS_SECONDS: Final = 2.0
"""Of a round, beside what its load says."""

_CALL_SECONDS: Final = 60.0
_QUEUES: Final = "/api/v1/queues"


def queue_workloads(timing: Timing) -> Sequence[Workload]:
    """10 publishers and 10 consumers of one group, each message settled."""
    load = partial(
        queue.Load, warm_up=timing.warm_up, duration=timing.duration, drain=2 * timing.drain
    )
    return [
        _workload("queue", "each message settled by $ack", load(), is_quick=True),
        _workload("queue-ack-50", "an $ack settles up to 50", load(ack_batch=50)),
        _workload("queue-puback", "settled by PUBACK", load(settle=queue.PUBACK)),
        _workload("queue-partitions", "10 partitions", load(partitions=10)),
        _workload("queue-key", "order=key, 1,000 keys a publisher", load(order="key", keys=1000)),
        _workload("queue-one", "1 publisher, 1 consumer", load(publishers=1, consumers=1)),
        _workload("queue-64k", "64 KiB, 10 under way each", load(payload=65_536, window=10)),
    ]


def _workload(name: str, what: str, load: queue.Load, *, is_quick: bool = False) -> Workload:
    who = "" if load.publishers == 1 else "10 publishers, 10 consumers, "
    return Workload(
        name=name,
        title=f"queue: {who}{what}",
        source=SOURCE,
        door=Door.QUEUE,
        modes=(Mode.DURABLE,),
        figure="settled_per_second",
        unit="messages/s",
        is_quick=is_quick,
        seconds=load.warm_up + load.duration + ENDS_SECONDS,
        once=partial(_once, load),
    )


def _once(load: queue.Load, running: Running | None, _mode: Mode) -> Round:
    assert running is not None
    server = Server("", running.doors[Door.MQTT], running.pid)
    outcomes: dict[str, list[queue.Outcome]] = {}
    queue.run([queue.Case("", load)], server, _Http(running.doors[Door.QUEUE]), 1, {}, outcomes)
    ((outcome,),) = outcomes.values()
    figures = outcome.figures(load)
    silence = None if figures["settled"] else "nothing was settled"
    return Round(
        figures=figures,
        by_second=outcome.counts["queue"]["settled_by_second"],
        trouble=outcome.counts["trouble"] or silence,
    )


class _Http:
    """Queues at the HTTP door of a node that is open to everybody."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        body = {"name": name, "partitions": partitions, "filters": [], "settings": dict(settings)}
        self._call("POST", _QUEUES, body)

    def owed(self, name: str) -> int:
        until = time.monotonic() + HEARD_SECONDS
        while True:
            depth: int = self._call("GET", f"{_QUEUES}/{name}")["depth"]
            if not depth or time.monotonic() > until:
                return depth
            time.sleep(0.05)

    def delete(self, name: str) -> None:
        self._call("DELETE", f"{_QUEUES}/{name}")

    def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        host, port = self._address
        connection = http.client.HTTPConnection(host, port, timeout=_CALL_SECONDS)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= http.client.BAD_REQUEST:
            raise HeadraceError(f"{method} {path}: {answer.status}: {content.decode()}")
        told: dict[str, Any] = json.loads(content)
        return told
