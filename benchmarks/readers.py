"""Rows of `run.py` that read through a node's Kafka door, from many partitions at once."""

import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from headrace import native
from headrace.wire.kafka import admin, apis
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.frames import LENGTH, Request, decode_response, encode_request

ROUNDS = 5
PARTITIONS = 1000
STREAM = "bench"
VALUE = b"x" * 1000
Row = dict[str, float]


class Connection:
    """One blocking socket to a Kafka door."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, api: apis.Api, body: object) -> Request:
        self._sent += 1
        self._socket.sendall(encode_request(api, api.last, self._sent, "bench", body))
        return Request(api, api.last, self._sent, "bench", body)

    def receive(self, request: Request) -> Any:
        (length,) = LENGTH.unpack(self._read(LENGTH.size))
        frame = self._read(length)
        return decode_response(request.api, request.version, request.correlation_id, frame)

    def call(self, api: apis.Api, body: object) -> Any:
        return self.receive(self.send(api, body))

    def _read(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            data += self._socket.recv(length - len(data)) or sys.exit(
                "the node closed a connection"
            )
        return bytes(data)


def produce(connection: Connection, partitions: range) -> None:
    """A record for each of the partitions, durable."""
    now_ms = time.time_ns() // 1_000_000  # which retention lets stay
    batch = native.build_batch([(None, VALUE, [], now_ms)])
    asked = [m.ProducePartition(index=each, records=batch) for each in partitions]
    topics = [m.ProduceTopic(name=STREAM, partitions=asked)]
    body = m.ProduceRequest(acks=-1, timeout_ms=60_000, topics=topics)
    for answer in connection.call(apis.PRODUCE, body).topics[0].partitions:
        assert answer.error_code == 0


def fetch_body(offsets: dict[int, int], **bounds: int) -> m.FetchRequest:
    asked = [
        m.FetchPartition(partition=each, fetch_offset=offset, partition_max_bytes=1 << 20)
        for each, offset in offsets.items()
    ]
    bounds = {"max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 50 << 20, **bounds}
    return m.FetchRequest(topics=[m.FetchTopic(topic=STREAM, partitions=asked)], **bounds)


def found(response: m.FetchResponse) -> dict[int, bytes]:
    """What came, by partition."""
    answers = response.topics[0].partitions
    codes = {each.error_code for each in answers}
    assert codes == {0}, f"error codes {codes}"
    return {each.partition_index: each.records for each in answers if each.records}


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def evict(segments: list[Path]) -> None:
    """Throws them out of the page cache."""
    for segment in segments:
        file = os.open(segment, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def fetch_row(process: int, port: int, data: Path) -> Row:
    """Fetches of a node's client over 1,000 partitions: cold, warm, and one that waits."""
    with Connection(port) as reader, Connection(port) as writer:
        topic = admin.CreateTopic(name=STREAM, num_partitions=PARTITIONS, replication_factor=1)
        body = admin.CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
        assert reader.call(apis.CREATE_TOPICS, body).topics[0].error_code == 0
        produce(writer, range(PARTITIONS))
        segments = sorted(data.glob(f"streams/{STREAM}/*/*.log"))
        start = dict.fromkeys(range(PARTITIONS), 0)

        def read_all() -> None:
            assert len(found(reader.call(apis.FETCH, fetch_body(start)))) == PARTITIONS

        cold, bare, warm = [], [], []
        for _ in range(ROUNDS):
            evict(segments)
            cold.append(timed(read_all))
            evict(segments)
            bare.append(timed(lambda: [segment.read_bytes() for segment in segments]))
            warm.append(timed(read_all))
        many = waits(process, reader, writer, PARTITIONS)
        one = waits(process, reader, writer, 1)
    figures = {
        "cold_ms": 1e3 * statistics.median(cold),
        "baseline_cold_ms": 1e3 * statistics.median(bare),
        "warm_ms": 1e3 * statistics.median(warm),
        **many,
        **{f"one_{name}": value for name, value in one.items()},
    }
    return {**figures, "ratio": figures["baseline_cold_ms"] / figures["cold_ms"]}


def waits(process: int, reader: Connection, writer: Connection, partitions: int) -> Row:
    """CPU of the node for each of many records that come one at a time: where a fetch waits for
    all of them, and where one fetch after the other waits for the next."""
    count = 200
    ends = {each: end_of(reader, each) for each in range(partitions)}

    def write(at: int) -> None:
        produce(writer, range(at % partitions, at % partitions + 1))

    before = cpu_seconds(process)
    waiting = reader.send(apis.FETCH, fetch_body(ends, min_bytes=count * len(VALUE)))
    for at in range(count):
        write(at)
    assert sum(map(len, found(reader.receive(waiting)).values())) >= count * len(VALUE)
    between = cpu_seconds(process)
    ends = {each: end_of(reader, each) for each in range(partitions)}
    for at in range(count):
        waiting = reader.send(apis.FETCH, fetch_body(ends))
        write(at)
        for partition in found(reader.receive(waiting)):
            ends[partition] += 1
    after = cpu_seconds(process)
    return {
        "wake_cpu_ms": 1e3 * (between - before) / count,
        "follow_cpu_ms": 1e3 * (after - between) / count,
    }


def end_of(reader: Connection, partition: int) -> int:
    asked = [m.ListOffsetsPartition(partition_index=partition, timestamp=m.LATEST_TIMESTAMP)]
    topics = [m.ListOffsetsTopic(name=STREAM, partitions=asked)]
    answer = reader.call(apis.LIST_OFFSETS, m.ListOffsetsRequest(topics=topics))
    return int(answer.topics[0].partitions[0].offset)
