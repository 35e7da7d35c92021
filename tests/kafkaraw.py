"""A Kafka connection without a client library: requests and responses as messages, one by one."""

import socket
from struct import pack, unpack

from headrace import native
from headrace.wire.kafka import apis
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.frames import Request, decode_response, encode_request

SECONDS = 30
"""How long a test waits for an answer before it fails."""


class RawConnection:
    """One blocking socket to a node's Kafka door."""

    def __init__(self, node, client_id="raw", host="127.0.0.1"):
        self.client_id = client_id
        to = ("127.0.0.1", node.kafka)
        self.socket = socket.create_connection(to, timeout=SECONDS, source_address=(host, 0))
        self.sent = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, api, body, version=None):
        """Sends a request; what `receive` needs to read the answer."""
        self.sent += 1
        version = api.last if version is None else version
        self.socket.sendall(encode_request(api, version, self.sent, self.client_id, body))
        return Request(api, version, self.sent, self.client_id, body)

    def receive(self, request):
        """Reads the next response, which must be that of `request`."""
        frame = self.read_frame()
        return decode_response(request.api, request.version, request.correlation_id, frame)

    def call(self, api, body, version=None):
        return self.receive(self.send(api, body, version))

    def read_frame(self):
        (length,) = unpack(">i", self.read(4))
        return self.read(length)

    def read(self, length):
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            assert more, "the node closed the connection"
            data += more
        return data

    def is_closed(self):
        """Waits for the node to end the connection; False if it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    # What tests ask most.

    def produce(self, stream, batch, partition=0, acks=-1, version=None, **more):
        """Produces one batch: the answer for its partition."""
        sent = self.send_produce(stream, batch, partition, acks, version, **more)
        return self.receive(sent).topics[0].partitions[0]

    def send_produce(self, stream, batch, partition=0, acks=-1, version=None, **more):
        each = m.ProducePartition(index=partition, records=batch)
        topic = m.ProduceTopic(name=stream, partitions=[each])
        body = m.ProduceRequest(acks=acks, timeout_ms=30_000, topics=[topic], **more)
        return self.send(apis.PRODUCE, body, version)

    def fetch(self, stream, offsets, version=None, **more):
        """Fetches from `{partition: offset}`: the answers by partition."""
        return self.receive_fetch(self.send_fetch(stream, offsets, version, **more))

    def send_fetch(self, stream, offsets, version=None, partition_max_bytes=1 << 20, **more):
        asked = [
            m.FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes
            )
            for partition, offset in offsets.items()
        ]
        topics = [m.FetchTopic(topic=stream, partitions=asked)]
        settings = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **more}
        return self.send(apis.FETCH, m.FetchRequest(topics=topics, **settings), version)

    def receive_fetch(self, request):
        response = self.receive(request)
        assert response.error_code == 0
        return {each.partition_index: each for each in response.topics[0].partitions}


def batch(*values, producer_id=-1, epoch=-1, sequence=-1, timestamp=1_700_000_000_000):
    """One record batch of values without keys."""
    built = native.build_batch([(None, value, [], timestamp) for value in values])
    return restamped(built, 43, pack(">qhi", producer_id, epoch, sequence))


def restamped(built, at, patch):
    """A batch with bytes of its header replaced and its checksum made right again."""
    changed = bytearray(built)
    changed[at : at + len(patch)] = patch
    changed[17:21] = pack(">I", crc32c(changed[21:]))
    return bytes(changed)


def crc32c(data):
    """CRC-32C, bit by bit: an own one, so that a shared mistake cannot hide."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def values(records):
    """The values of fetched batches."""
    rows = native.decode_records(records, 0, 2**62, 1 << 20).rows() if records else []
    return [value for _, _, _, value, _ in rows]
