"""Fuzzing of what reads bytes in Python: the PROXY header, the WebSocket layer, Kafka's requests.

`HEADRACE_FUZZ_KEEP=1 pytest -m soak tests/test_fuzz.py` writes the corpora anew.
"""

import asyncio
import re
import time
from dataclasses import fields, is_dataclass
from struct import pack

import pytest

from fuzzer import fuzz
from gates import gate
from headrace import limits
from headrace.adapters.layers import through
from headrace.adapters.websocket import WebSocketSettings, websocket
from headrace.errors import MalformedError
from headrace.kernel.catalog import Change
from headrace.native import Switchboard
from headrace.node.kafka import KafkaDoor, KafkaSettings
from headrace.ports import NodeState
from headrace.wire.kafka import apis, frames
from headrace.wire.proxy import read_header
from nodes import Client, running
from test_layers import UPGRADE, Wire

SETTINGS = WebSocketSettings(path="/mqtt", origins=[], frame_bytes_max=400)
HOW_LONG = [
    pytest.param({"inputs": 4_000, "seconds": 0, "seed": 1}, id="seconds"),
    pytest.param({"inputs": 0, "seconds": 600, "seed": time.time_ns()}, id="minutes",
                 marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
]  # fmt: skip


def proxy(pieces):
    """A header is the same whatever follows it, and never refused while it is not whole."""
    data = b"".join(pieces)
    try:
        header = read_header(data)
    except MalformedError as error:
        return {re.sub(r"[0-9]+", "", str(error))[:30]}
    if header is None:
        return {("more", min(len(data), 16))}
    assert header.size_bytes <= limits.PROXY_HEADER_BYTES_MAX
    whole = data[: header.size_bytes]
    assert read_header(whole) == read_header(whole + b"\0") == header
    for end in range(1, len(whole)):
        assert read_header(whole[:end]) is None
    return {(whole[:5], header.source is not None, header.source and ":" in header.source.host)}


class Above:
    """A door."""

    def __init__(self):
        self.data = b""

    def received(self, data):
        self.data += data

    def closed(self):
        pass


def layer(pieces):
    """What pieces come to: what the door gets, what is sent, and why it ended."""
    wire, doors = Wire(), []

    def door(_link):
        doors.append(Above())
        return doors[0]

    receiver = through([websocket(SETTINGS)], door)(wire)
    for piece in pieces:
        if piece and not wire.is_closed:
            receiver.received(piece)
    receiver.closed()
    return doors[0].data if doors else None, wire.sent, wire.refusals


def websockets(pieces):
    """However bytes are cut, the door gets the same, and it ends or does not."""
    sent = b"".join(pieces)
    data, answers, refusals = layer(pieces)
    # What is cut after the request only: a frame that comes with it is refused (no answer yet).
    if data is not None:
        upgrade, rest = sent.partition(b"\r\n\r\n")[0] + b"\r\n\r\n", sent.partition(b"\r\n\r\n")[2]
        drip = layer([upgrade, *(bytes([byte]) for byte in rest)])
        assert data == drip[0] or (
            refusals and (data.startswith(drip[0]) or drip[0].startswith(data))
        )
        # Two faults in one read have one reason, and the one that comes first byte by byte.
        assert bool(drip[2]) == bool(refusals)
        assert len(data) <= len(sent)
    words = {re.sub(r"b'.*'|b\".*\"|[0-9]+", "", text)[:60] for _, text in refusals}
    opcodes = {("sent", byte) for byte in answers.partition(b"\r\n\r\n")[2][:1]}
    size = ("got", None if data is None else len(data).bit_length())
    return words | opcodes | {size, ("answer", answers[:14])}


STREAMS = {"a": Change(partitions=2)}
CHANGES_STREAMS = {
    apis.METADATA, apis.CREATE_TOPICS, apis.CREATE_PARTITIONS, apis.DELETE_TOPICS,
    apis.ALTER_CONFIGS, apis.INCREMENTAL_ALTER_CONFIGS,
}  # fmt: skip


def stream_of(pieces):
    """What a client sends: a piece whose first byte is even is a request, and gets its length."""
    for kind, *rest in filter(None, pieces):
        data = bytes(rest)
        yield data if kind % 2 else pack(">i", len(data)) + data


def requests_in(sent):
    """Requests that a connection must serve, and why it ends where it must."""
    framer, requests = frames.Framer(limits.KAFKA_REQUEST_BYTES_MAX), []
    framer.feed(sent)
    try:
        while (frame := framer.take()) is not None:
            request = frames.decode_request(frame)
            if request.body is not None:
                again = frames.encode_request(
                    request.api, request.version, request.correlation_id,
                    request.client_id, request.body,
                )  # fmt: skip
                assert frames.decode_request(again[frames.LENGTH.size :]) == request
            requests.append(request)
    except MalformedError as error:
        return requests, re.sub(r"[0-9]+", "", str(error))
    return requests, None


def said(body):
    """Every error in a message: its code, and what is said about it without what was sent."""
    if isinstance(body, list):
        for each in body:
            yield from said(each)
    elif is_dataclass(body):
        for field in fields(body):
            value = getattr(body, field.name)
            if field.name == "error_message":
                yield re.sub(r"\".*\"|'.*'|[0-9]+", "", value or "")[:40]
            elif field.name == "error_code":
                yield value
            yield from said(value)


class KafkaTarget:
    """A node and two doors that answer whatever comes: one with rules of access, one without."""

    def __init__(self, node, folder):
        self.node = node
        rule = {"deny": ["read", "write"], "streams": ["a"]}
        ruled = gate(folder, Switchboard((0, 0)), anonymous=True, no_match="allow", rules=[rule])
        self.doors = [KafkaDoor(node._broker, KafkaSettings(), each) for each in (node.gate, ruled)]

    async def serve(self, pieces):
        """What pieces come to: each request is answered, in its order, by a message of its own."""
        sent = list(stream_of(pieces))
        requests, fault = requests_in(b"".join(sent))
        has_rules = pieces[0][:1] > b"\x7f"
        door, client = self.doors[has_rules], Client()
        before = +door.hung_up
        connection = door(client)
        for data in sent:
            connection.received(data)
        while connection._works:
            due = filter(None, [connection._decoding, connection._turn])
            await asyncio.wait([*connection._pipeline, *due])
        connection.closed()
        ends = door.hung_up - before
        words = {fault, *ends}
        assert "bug" not in ends
        assert client.is_open == (not ends)
        assert (door.memory.held_bytes, door.memory.work_bytes) == (0, 0)
        assert self.node.state is NodeState.READY
        due = [each for each in requests if each.api is not apis.PRODUCE or each.body.acks]
        due = due[: len(client.sent)] if ends else due  # then nobody waits for the others
        for request, frame in zip(due, client.sent, strict=True):
            body = frames.decode_response(
                request.api, request.version, request.correlation_id, frame[frames.LENGTH.size :]
            )
            asked = request.api.name, request.version, has_rules
            words |= {(*asked, code) for code in {None, *said(body)}}
        if CHANGES_STREAMS & {each.api for each in requests}:
            await self.begin_anew()
        return words

    async def begin_anew(self):
        """The streams are those that every input begins with."""
        for report in self.node.streams():
            await self.node.delete_stream(report.definition.name)
        for name, change in STREAMS.items():
            await self.node.create_stream(name, change)


@pytest.mark.parametrize("budget", HOW_LONG)
def test_a_proxy_header_is_read_or_refused(budget):
    fuzz(proxy, "proxy", **budget)


@pytest.mark.parametrize("budget", HOW_LONG)
def test_a_websocket_is_served_or_refused(budget):
    assert layer([UPGRADE])[0] == b"", "the upgrade that the corpus begins with"
    fuzz(websockets, "websocket", **budget)


@pytest.mark.parametrize("budget", HOW_LONG)
async def test_a_kafka_request_is_answered_or_refused(budget, memory_folder, monkeypatch):
    monkeypatch.setattr(limits, "KAFKA_FETCH_WAIT_MS_MAX", 0)
    async with running(memory_folder, **STREAMS) as (node, _):
        target, loop = KafkaTarget(node, memory_folder), asyncio.get_running_loop()

        def serve(pieces):
            return asyncio.run_coroutine_threadsafe(target.serve(pieces), loop).result()

        await asyncio.to_thread(fuzz, serve, "kafka", **budget)
