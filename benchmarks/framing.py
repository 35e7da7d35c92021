"""The row of `run.py` about the frame door, beside the Kafka door of the same node.

Both clients are a socket with bytes made beforehand, so that what is measured is the node.
"""

import asyncio
import json
import socket
import statistics
import struct
import time

from servers import headrace_node

from clients import STREAM, filled
from headrace import native
from headrace.wire.kafka import apis
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.frames import encode_request

ROUNDS = 3
VALUE = b"x" * 100
FRAMES = 300_000
UNDER_WAY = 20_000
"""Records not acknowledged: what 5 batches of a Kafka client hold."""
AT_ONCE = 500
"""Records of one write, and of one Kafka batch."""
STAMP_MS = 1_700_000_000_000
Row = dict[str, float]


def exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = client.recv(size - len(data))
        assert more, "the node closed a connection"
        data += more
    return data


def connected(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def framed(port: int) -> float:
    """Frames a second, each with a checksum of its own, acknowledged when durable."""
    with connected(port) as client:
        line = {"stream": STREAM, "mode": "produce", "partition": 0}
        client.sendall(json.dumps(line).encode() + b"\n")
        assert client.recv(4096).startswith(b'{"ok": true')
        block = AT_ONCE * native.build_frame(None, VALUE, [], STAMP_MS)
        started = time.perf_counter()
        sent = stored = 0
        while stored < FRAMES:
            while sent < FRAMES and sent - stored < UNDER_WAY:
                client.sendall(block)
                sent += AT_ONCE
            stored += struct.unpack(">Iiq", exactly(client, 16))[0]
        return FRAMES / (time.perf_counter() - started)


def batched(port: int) -> float:
    """Records a second in batches that are made beforehand, acknowledged when durable."""
    batch = native.build_batch([(None, VALUE, [], STAMP_MS)] * AT_ONCE)
    partition = m.ProducePartition(index=0, records=batch)
    topic = m.ProduceTopic(name=STREAM, partitions=[partition])
    body = m.ProduceRequest(acks=-1, timeout_ms=30_000, topics=[topic])
    request = encode_request(apis.PRODUCE, apis.PRODUCE.last, 1, "bench", body)
    with connected(port) as client:
        started = time.perf_counter()
        sent = stored = 0
        while stored < FRAMES:
            while sent < FRAMES and sent - stored < UNDER_WAY:
                client.sendall(request)
                sent += AT_ONCE
            (length,) = struct.unpack(">i", exactly(client, 4))
            exactly(client, length)
            stored += AT_ONCE
        return FRAMES / (time.perf_counter() - started)


def frame_row() -> Row:
    own, peer = [], []
    with headrace_node() as node:
        asyncio.run(filled(f"127.0.0.1:{node.kafka}", 0))
        for _ in range(ROUNDS):
            own.append(framed(node.frame))
            peer.append(batched(node.kafka))
    own_rate, peer_rate = statistics.median(own), statistics.median(peer)
    return {
        "per_second": own_rate,
        "baseline_per_second": peer_rate,
        "ratio": own_rate / peer_rate,
    }


ROWS = {"frame": frame_row}
