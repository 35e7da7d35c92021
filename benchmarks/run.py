"""headrace beside a baseline, in one run on one machine.

    make bench-parts                    every row
    make bench-parts ARGS="commit"      one row: commit, append, partitions, read, cold, open,
                                        compact, fetch, stored, collect, decode, produce, arrow,
                                        frame, those of the Kafka door: librdkafka, consumed, late,
                                        open5000, metadata, those of the MQTT door: passwords, tls,
                                        restore, that of queues: settled, and those of Spark:
                                        spark-source, spark-pipeline, spark-cold, spark-batch,
                                        spark-age
    make bench-parts ARGS="--json"      the figures as one JSON object

What several brokers can be asked for is `headrace bench suite` (`make bench`, docs/bench.md).
Each row alternates headrace and its baseline, round by round, and prints medians and their ratio:
on shared machines only the ratio means much. Rows:

- `commit`: append to durable in the store, one at a time, against pwrite + fdatasync of the same
  bytes; then under load.
- `append`: records of 100 bytes in producer batches into one partition, durable, against the
  disk: a mebibyte and an fdatasync in turn.
- `partitions`: a batch for each of 1,000 partitions at once, against as many for one.
- `read`: one partition through the decoder, against reading its file.
- `cold`: 1,000 readers at places of their own in a file that is not in memory, against one.
- `open`: opening a folder after an orderly stop and after kill -9, and the memory that it takes.
- `compact`: a log in which each key stands twice, as fast as it goes; then reading and writing
  100 MiB/s, and appends to another log meanwhile, against the same appends alone.
- `fetch`: one Kafka fetch over 1,000 partitions that are not in memory, against reading their files
  one after the other; what the node computes for each record that a waiting fetch hears of, and for
  each that one fetch after the other brings, over 1,000 partitions and over one.
- `stored`: QoS 1 publishes of 300 bytes into a stream, acknowledged after fdatasync, against
  mosquitto acknowledging from memory.
- `collect`: the collector's own readings a second, file to last PUBACK, against mosquitto
  acknowledging from memory; paho-mqtt is the bound of both.
- `passwords`: 5,000 connections, with a password that the node has seen before, against mosquitto.
- `tls`: connects over TLS 1.3 one after the other; the ratio is of the server's processor time.
- `restore`: from the start of the process to ready with 100,000 stored sessions of a subscription
  each, after an orderly stop and after kill -9, against mosquitto with its file.
- `settled`: from the start of the process to ready, and from there to a delivery, after kill -9
  with 10 million messages of a queue settled, in no order, and a million in flight; against an
  empty folder.
- `produce`: records of 100 bytes of `headrace.Producer`, each with a future, acknowledged after
  fdatasync, against confluent-kafka at the same node with a callback for each.
- `arrow`: records of 100 bytes out of four partitions as Arrow batches (`get_arrow`), against the
  lists of confluent-kafka.
- `frame`: frames of 100 bytes a second with acknowledgements, against the Kafka door of the same
  node with batches of 500 that are made beforehand.
- `librdkafka`, `consumed`, `late`, `open5000`, `metadata`: the Kafka door, node and clients on the
  same cores, against figures that it is to reach (`target`): records of 100 bytes into one
  partition by one producer of librdkafka, acknowledged after fdatasync, beside the same with
  `fsync = os`; out of four partitions as Arrow batches, beside lists and confluent-kafka; from a
  schedule at half of what the first is to reach to a reader; 5,000 connections; metadata of 3,000
  partitions, and small requests beside it.
- `spark-source`, `spark-pipeline`, `spark-cold`, `spark-batch`, `spark-age`: the measures of
  `headrace bench spark` (docs/bench.md), beside what Spark does alone, with what they are to reach
  (`target`).
- `decode`: stored readings (300 bytes, four headers) into Arrow buffers, against the compiled
  reader of aiokafka.
"""

import argparse
import json
import os
import select
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.resources import as_file, files
from itertools import islice

import engine
import framing
import kafka
import mqtt
import readers
import sessions
import settled
import spark
from aiokafka.record.default_records import DefaultRecordBatch
from servers import headrace_node, mosquitto

import clients
from headrace import native
from headrace.collect import CsvFile, Origin, Publisher, narrow, replayed
from headrace.model import Address

ROUNDS = 3
Row = dict[str, float]


# --- a client that costs next to nothing -------------------------------------------------------


def connect(port: int, client_id: str) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=30)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    name = client_id.encode()
    body = b"\x00\x04MQTT\x04\x02\x00\x00" + struct.pack(">H", len(name)) + name
    client.sendall(bytes([0x10, len(body)]) + body)
    assert client.recv(4) == b"\x20\x02\x00\x00"
    return client


def publish_bytes(topic: bytes, payload: bytes, packet_id: int) -> bytes:
    body = struct.pack(">H", len(topic)) + topic
    if packet_id:
        body += struct.pack(">H", packet_id)
    body += payload
    length, remaining = b"", len(body)
    while True:
        remaining, digit = divmod(remaining, 128)
        length += bytes([digit | (0x80 if remaining else 0)])
        if not remaining:
            break
    return (b"\x32" if packet_id else b"\x30") + length + body


def read_exactly(client: socket.socket, size: int) -> None:
    while size:
        size -= len(client.recv(min(size, 1 << 20)) or sys.exit("the server closed a connection"))


def acknowledged_rate(port: int, messages: int, block: int = 500) -> float:
    """QoS 1 publishes a second, two blocks in flight."""
    payload, topic = b"x" * 300, b"dcgm/host/GPU-%d/DCGM_FI_DEV_GPU_UTIL"
    client = connect(port, "bench-stored")
    blocks = [
        b"".join(
            publish_bytes(topic % (i % 8), payload, 1 + half * block + i) for i in range(block)
        )
        for half in (0, 1)
    ]
    started = time.perf_counter()
    client.sendall(blocks[0])
    for number in range(1, messages // block):
        client.sendall(blocks[number % 2])
        read_exactly(client, 4 * block)
    read_exactly(client, 4 * block)
    rate = messages / (time.perf_counter() - started)
    client.close()
    return rate


def collected_rate(port: int, readings: int) -> float:
    """Readings a second of the collector, narrow messages at QoS 1."""
    trace = files("headrace") / "data" / "h200-1hz.csv.gz"
    with as_file(trace) as path:
        replay = islice(replayed(CsvFile(path), None, loop=True), readings)
        messages = narrow(replay, lambda: time.time_ns() // 1000)
        publisher = Publisher(Address("127.0.0.1", port), Origin("bench", time.time_ns()))
        started = time.perf_counter()
        counts = publisher.run(messages)
        return counts.acknowledged / (time.perf_counter() - started)


# --- rows --------------------------------------------------------------------------------------


def quantiles(seconds: list[float]) -> tuple[float, float]:
    ordered = sorted(seconds)
    return ordered[len(ordered) // 2] * 1e3, ordered[len(ordered) * 99 // 100] * 1e3


def await_ticket(store: native.Store) -> None:
    """Blocks until the store reports at least one completion."""
    while not store.poll():
        select.select([store.notify_fd()], [], [])


def commit_row() -> Row:
    record = (b"key", b"x" * 4096, [], 1_700_000_000_000)
    batch = native.build_batch([record])
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        store = native.Store.open(f"{folder}/node")
        log = store.open_log("bench", 0, 1, 0)
        bare = os.open(f"{folder}/bare", os.O_CREAT | os.O_RDWR)
        os.posix_fallocate(bare, 0, 1 << 26)
        os.pwrite(bare, bytes(1 << 26), 0)
        os.fsync(bare)
        ours, theirs, position = [], [], 0
        for ticket in range(400):
            started = time.perf_counter()
            store.append(log, batch, ticket, 0)
            store.submit()
            await_ticket(store)
            ours.append(time.perf_counter() - started)
            started = time.perf_counter()
            os.pwrite(bare, batch, position)
            os.fdatasync(bare)
            theirs.append(time.perf_counter() - started)
            position = (position + len(batch)) % (1 << 25)
        loaded = commit_under_load(store, log, batch)
        store.close()
        os.close(bare)
    row = dict(zip(("p50_ms", "p99_ms"), quantiles(ours), strict=True))
    row |= dict(zip(("baseline_p50_ms", "baseline_p99_ms"), quantiles(theirs), strict=True))
    row |= dict(zip(("loaded_p50_ms", "loaded_p99_ms"), quantiles(loaded), strict=True))
    return row | {"ratio": row["baseline_p50_ms"] / row["p50_ms"]}


def commit_under_load(store: native.Store, log: int, batch: bytes) -> list[float]:
    """Latencies with 64 appends of 4 KiB in flight."""
    begun: dict[int, float] = {}
    seconds: list[float] = []
    ticket = 1000
    while len(seconds) < 20_000:
        while len(begun) < 64:
            begun[ticket] = time.perf_counter()
            store.append(log, batch, ticket, 0)
            ticket += 1
        store.submit()
        select.select([store.notify_fd()], [], [])
        now = time.perf_counter()
        seconds += [now - begun.pop(done.ticket) for done in store.poll()]
    while begun:
        select.select([store.notify_fd()], [], [])
        for done in store.poll():
            begun.pop(done.ticket)
    return seconds


def versus_mosquitto(measure: Callable[[int, int], float], messages: int) -> Row:
    ours, theirs = [], []
    with headrace_node() as node, mosquitto() as peer:
        for _ in range(ROUNDS):
            ours.append(measure(node.mqtt, messages))
            theirs.append(measure(peer.mqtt, messages))
    own, peer = statistics.median(ours), statistics.median(theirs)
    return {"per_second": own, "baseline_per_second": peer, "ratio": own / peer}


def decode_row() -> Row:
    headers = [("mqtt.topic", b"dcgm/node-17/GPU-5c1f0d8e-2a8b-4c55-9a57-5f1d6f0a7b11/POWER_USAGE")]
    headers += [("source", b"collector-17"), ("epoch", b"1764284400"), ("sequence", b"123456")]
    record = (b"GPU-5c1f0d8e-2a8b-4c55-9a57-5f1d6f0a7b11", b"x" * 300, headers, 1_764_284_400_000)
    count = 20_000
    batch = native.build_batch([record] * count)

    def rate(decode: Callable[[], object]) -> float:
        started = time.perf_counter()
        decode()
        return count / (time.perf_counter() - started)

    ours, theirs = [], []
    for _ in range(5 * ROUNDS):
        ours.append(rate(lambda: native.decode_records(batch, 0, count, count)))
        theirs.append(rate(lambda: list(DefaultRecordBatch(batch))))
    own, peer = statistics.median(ours), statistics.median(theirs)
    return {"per_second": own, "baseline_per_second": peer, "ratio": own / peer}


def fetch_row() -> Row:
    with headrace_node() as node:
        return readers.fetch_row(node.process, node.kafka, node.data)


ROWS: dict[str, Callable[[], Row]] = {
    "commit": commit_row,
    **engine.ROWS,
    "fetch": fetch_row,
    "stored": lambda: versus_mosquitto(acknowledged_rate, 200_000),
    "collect": lambda: versus_mosquitto(collected_rate, 30_000),
    "decode": decode_row,
    **clients.ROWS,
    **framing.ROWS,
    **kafka.ROWS,
    **mqtt.ROWS,
    **sessions.ROWS,
    **settled.ROWS,
    **spark.ROWS,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for name in options.rows:
        if name not in ROWS:
            parser.error(f"no row {name!r}; there are {', '.join(ROWS)}")
    results = {}
    for name in options.rows or ROWS:
        results[name] = ROWS[name]()
        if not options.json:
            figures = ", ".join(f"{k} {v:,.2f}" for k, v in results[name].items())
            print(f"{name:8} {figures}", flush=True)
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
