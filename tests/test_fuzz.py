"""Fuzzing of what reads bytes in Python: the PROXY header and the WebSocket layer.

`HEADRACE_FUZZ_KEEP=1 pytest -m soak tests/test_fuzz.py` writes the corpora anew.
"""

import re
import time

import pytest

from fuzzer import fuzz
from headrace import limits
from headrace.adapters.layers import through
from headrace.adapters.websocket import WebSocketSettings, websocket
from headrace.errors import MalformedError
from headrace.wire.proxy import read_header
from test_layers import UPGRADE, Wire

SETTINGS = WebSocketSettings(path="/mqtt", origins=[], frame_bytes_max=400)
HOW_LONG = [
    pytest.param({"inputs": 4_000, "seconds": 0, "seed": 1}, id="seconds"),
    pytest.param({"inputs": 0, "seconds": 150, "seed": time.time_ns()}, id="minutes",
                 marks=[pytest.mark.soak, pytest.mark.timeout(600)]),
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


@pytest.mark.parametrize("budget", HOW_LONG)
def test_a_proxy_header_is_read_or_refused(budget):
    fuzz(proxy, "proxy", **budget)


@pytest.mark.parametrize("budget", HOW_LONG)
def test_a_websocket_is_served_or_refused(budget):
    assert layer([UPGRADE])[0] == b"", "the upgrade that the corpus begins with"
    fuzz(websockets, "websocket", **budget)
