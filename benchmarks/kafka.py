"""Rows of the Kafka door against what it is to reach, by the load of `headrace bench kafka`.

Node and clients share all cores. A row says `target`, what was reached of it (`of_target`, 1 or
more is enough), and of rounds the best: what else the machine does only takes something away.
"""

import os
from collections.abc import Callable

from servers import Node, headrace_node

from headrace.bench import Server, kafka
from headrace.model import Address

ROUNDS = 3
PRODUCED = 300_000
OF_OS = 0.7
READ = 1_500_000
LATE_MS = 10.0
CONNECTIONS = 5_000
PARTITIONS = 3_000
METADATA_MS = 50.0
Row = dict[str, float]
Outcomes = list[kafka.Outcome]


def measured(measure: str, load: kafka.Load, clients: tuple[str, ...] = ("confluent",)) -> Outcomes:
    """Rounds against a fresh node."""
    with headrace_node() as node:
        return against(node, measure, load, clients)


def against(
    node: Node,
    measure: str,
    load: kafka.Load,
    clients: tuple[str, ...] = ("confluent",),
    rounds: int = ROUNDS,
) -> Outcomes:
    """Rounds of which nothing may be lost."""
    server = Server("headrace", Address("127.0.0.1", node.kafka), node.process)
    outcomes = kafka.run([measure], load, [server], clients, rounds)
    for outcome in outcomes:
        assert not any(outcome.figures.get(name) for name in kafka.FAULTS), outcome
    return outcomes


def best(outcomes: Outcomes, client: str, figure: str, of: Callable[..., float] = max) -> float:
    return of(o.figures[figure] or 0.0 for o in outcomes if o.client == client)


def librdkafka_row() -> Row:
    """100 B, one partition, one producer: with a sync before each acknowledgement, and without."""
    rates: dict[str, list[float]] = {"commit": [], "os": []}
    with headrace_node() as node:
        for _ in range(ROUNDS):
            for fsync, found in rates.items():
                load = kafka.Load(configs={"fsync": fsync}, warm_up=0.5, duration=3.0)
                outcomes = against(node, "produce", load, rounds=1)
                found.append(best(outcomes, "confluent", "records_per_second"))
    commit, system = map(max, rates.values())
    return {
        "per_second": commit,
        "target": PRODUCED,
        "of_target": commit / PRODUCED,
        "os_per_second": system,
        "ratio": commit / system,
        "ratio_target": OF_OS,
    }


def consumed_row() -> Row:
    found = measured("consume", kafka.Load(partitions=4), kafka.CLIENTS)
    names = ("headrace get_arrow", "headrace getmany", "confluent consume")
    arrow, many, theirs = (best(found, name, "records_per_second") for name in names)
    return {
        "arrow_per_second": arrow,
        "target": READ,
        "of_target": arrow / READ,
        "getmany_per_second": many,
        "baseline_per_second": theirs,
        "ratio": arrow / theirs,
    }


def late_row() -> Row:
    """At half of `PRODUCED`: half of what librdkafka produces is more than Python can read."""
    found = measured("latency", kafka.Load(linger_ms=1, rate=PRODUCED / 2))
    p99 = best(found, "confluent", "p99_ms", min)
    return {
        "per_second": best(found, "confluent", "asked_per_second"),
        "p50_ms": best(found, "confluent", "p50_ms", min),
        "p99_ms": p99,
        "max_ms": best(found, "confluent", "max_ms", min),
        "target": LATE_MS,
        "of_target": LATE_MS / p99,
    }


def open_row() -> Row:
    found = measured("connections", kafka.Load(connections=CONNECTIONS))
    return {
        "connections": best(found, "", "connections"),
        "target": CONNECTIONS,
        "of_target": best(found, "", "connections") / CONNECTIONS,
        "connects_per_second": best(found, "", "connects_per_second"),
        "bytes_per_connection": best(found, "", "bytes_per_connection"),
        "one_more_ms": best(found, "", "one_more_ms", min),
    }


def metadata_row() -> Row:
    found = measured("metadata", kafka.Load(metadata_partitions=PARTITIONS, duration=2.0))
    p99 = best(found, "", "answer_p99_ms", min)
    return {
        "partitions": best(found, "", "partitions"),
        "answer_p50_ms": best(found, "", "answer_p50_ms", min),
        "answer_p99_ms": p99,
        "target": METADATA_MS,
        "of_target": METADATA_MS / p99,
        "beside_p99_ms": best(found, "", "beside_p99_ms", min),
        "load": os.getloadavg()[0],
    }


ROWS: dict[str, Callable[[], Row]] = {
    "librdkafka": librdkafka_row,
    "consumed": consumed_row,
    "late": late_row,
    "open5000": open_row,
    "metadata": metadata_row,
}
