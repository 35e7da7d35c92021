"""The row of a start behind many settled messages: queues after kill -9."""

import json
import signal
import statistics
import tempfile
import time
import urllib.request
from typing import Any

from servers import Node, headrace_node

from headrace import native
from headrace.bench import Usage
from headrace.bench.queue import Load

SETTLED = 10_000_000
OPEN = 1_000_000
ROUNDS = 3
QUEUE = "settled"

Row = dict[str, float]


def call(node: Node, method: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.http}{path}",
        data,
        {"content-type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def settle_many(node: Node) -> int:
    """Settles so many, any of those that are open next, and leaves as many open; how many are."""
    load = Load(
        open=OPEN,
        settlements=SETTLED,
        at_random=True,
        consumers=-(-OPEN // 60_000),
        prefetch=60_000,
        ack_batch=50,
    )
    body = {"name": QUEUE, "partitions": 1, "filters": [], "settings": load.settings({})}
    call(node, "POST", "/api/v1/queues", body)
    running = native.MqttLoad(f"127.0.0.1:{node.mqtt}", credentials=None, **load.plan(QUEUE))
    while not running.is_over():
        time.sleep(0.05)
        settled = running.progress()["queue"]["settled"]
        if settled >= SETTLED - load.ack_batch * load.consumers:
            return settled
    raise RuntimeError(f"only {running.finish()['queue']['settled']} were settled")


def settled_row() -> Row:
    """From the start of the process to ready, and to a delivery."""
    with headrace_node() as node:
        empty = node.seconds
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        with headrace_node(folder, stop=signal.SIGKILL) as node:
            settled = settle_many(node)
        ready, delivered, resident = [], [], 0
        for _ in range(ROUNDS):
            with headrace_node(folder, stop=signal.SIGKILL) as node:
                ready.append(node.seconds)
                began = time.perf_counter()
                pull = {"group": "bench", "max": 1, "wait": "60s"}
                message = call(node, "POST", f"/api/v1/queues/{QUEUE}/pull", pull)
                delivered.append(time.perf_counter() - began)
                assert len(message["messages"]) == 1
                resident = Usage.of(node.process).resident_bytes
                owed = call(node, "GET", f"/api/v1/queues/{QUEUE}")["depth"]
    assert owed <= SETTLED + OPEN - settled, f"{owed} are owed, {settled} were settled"
    own = statistics.median(ready)
    return {
        "start_seconds": own,
        "to_delivery_seconds": statistics.median(delivered),
        "owed": owed,
        "resident_bytes": resident,
        "baseline_empty_start_seconds": empty,
        "ratio": empty / own,
    }


ROWS = {"settled": settled_row}
