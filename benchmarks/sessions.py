"""Rows of MQTT sessions that outlive their connection, and of connections over TLS."""

import asyncio
import contextlib
import signal
import socket
import ssl
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import trustme
from mqtt import on_own_cores
from servers import Node, Peer, for_others, headrace_node, mosquitto

from headrace.bench import Usage

SESSIONS = 100_000
AT_ONCE = 50
ROUNDS = 3

TLS_CONNECTS = 2_000
TLS_HELD = 500

Row = dict[str, float]


# --- packets of MQTT 5.0 -----------------------------------------------------------------------


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">H", len(data)) + data


def connect_bytes(client_id: str, expiry_s: int) -> bytes:
    flags = 0 if expiry_s else 2  # a clean start where nothing outlives the connection
    properties = struct.pack(">BBI", 5, 0x11, expiry_s)
    body = text("MQTT") + bytes([5, flags, 0, 0]) + properties + text(client_id)
    return bytes([0x10, len(body)]) + body


def subscribe_bytes(topic_filter: str) -> bytes:
    body = b"\x00\x01\x00" + text(topic_filter) + b"\x01"
    return bytes([0x82, len(body)]) + body


DISCONNECT = b"\xe0\x00"


# --- restore -----------------------------------------------------------------------------------


async def store_sessions(port: int, count: int) -> None:
    """Leaves so many sessions with a subscription each."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            # Ports of one address would run out: a closed one rests for a minute.
            source = (f"127.0.0.{2 + number % 8}", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=source)
            name = f"meter-{number}"
            writer.write(connect_bytes(name, 86_400) + subscribe_bytes(f"site/{name}/set"))
            for kind in (0x20, 0x90):
                first, length = await reader.readexactly(2)
                body = await reader.readexactly(length)
                assert (first, body[1 if kind == 0x20 else -1] <= 1) == (kind, True)
            writer.write(DISCONNECT)
            writer.close()
            await writer.wait_closed()

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


def restore_row() -> Row:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        with headrace_node() as node:
            empty = node.seconds
        with headrace_node(folder) as node:
            asyncio.run(store_sessions(node.mqtt, SESSIONS))
        orderly, killed, resident = [], [], 0
        for _ in range(ROUNDS):
            with headrace_node(folder, stop=signal.SIGKILL) as node:
                orderly.append(node.seconds)
                resident = Usage.of(node.process).resident_bytes
            with headrace_node(folder) as node:
                killed.append(node.seconds)
        theirs = Path(folder) / "mosquitto"
        theirs.mkdir()
        for_others(Path(folder), theirs)
        options = {"persistence": "true", "persistence_location": f"{theirs}/"}
        with mosquitto(**options) as peer:
            asyncio.run(store_sessions(peer.mqtt, SESSIONS))
        starts = []
        for _ in range(ROUNDS):
            with mosquitto(**options) as peer:
                starts.append(peer.seconds)
    own, other = statistics.median(orderly), statistics.median(starts)
    return {
        "start_seconds": own,
        "after_kill_seconds": statistics.median(killed),
        "empty_start_seconds": empty,
        "resident_bytes": resident,
        "baseline_start_seconds": other,
        "ratio": other / own,
    }


# --- TLS ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def both_with_tls() -> Iterator[tuple[Node, Peer, ssl.SSLContext]]:
    ca = trustme.CA()
    certificate = ca.issue_cert("127.0.0.1", key_type=trustme.KeyType.ECDSA)
    client = ssl.create_default_context()
    ca.configure_trust(client)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        chain, key = Path(folder) / "chain.pem", Path(folder) / "key.pem"
        chain.write_bytes(b"".join(pem.bytes() for pem in certificate.cert_chain_pems))
        certificate.private_key_pem.write_to_path(key)
        for_others(Path(folder), chain, key)
        settings = {
            "HEADRACE_MQTT__TLS_CERTIFICATE": str(chain),
            "HEADRACE_MQTT__TLS_KEY": str(key),
        }
        with (
            headrace_node(**settings) as node,
            mosquitto({"certfile": str(chain), "keyfile": str(key)}) as peer,
        ):
            yield node, peer, client


def opened(port: int, name: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    bare = socket.create_connection(("127.0.0.1", port), timeout=30)
    bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = context.wrap_socket(bare, server_hostname="127.0.0.1")
    connection.sendall(connect_bytes(name, 0))
    assert connection.recv(2)[0] == 0x20
    return connection


def tls_figures(process: int, port: int, context: ssl.SSLContext) -> tuple[float, float, float]:
    """Connects a second one after the other, processor time and bytes of each."""
    before, started = Usage.of(process), time.perf_counter()
    for number in range(TLS_CONNECTS):
        opened(port, f"tls-{number}", context).close()
    seconds = time.perf_counter() - started
    cpu = Usage.of(process).cpu_seconds - before.cpu_seconds
    before = Usage.of(process)
    with contextlib.ExitStack() as stack:
        for number in range(TLS_HELD):
            stack.enter_context(opened(port, f"held-{number}", context))
        grown = Usage.of(process).resident_bytes - before.resident_bytes
    return TLS_CONNECTS / seconds, cpu / TLS_CONNECTS * 1e6, grown / TLS_HELD


def tls_row() -> Row:
    with both_with_tls() as (node, peer, context), on_own_cores([node.process, peer.process]):
        own = tls_figures(node.process, node.mqtts, context)
        other = tls_figures(peer.process, peer.mqtt, context)
    names = ("connects_per_second", "cpu_us_per_connect", "bytes_per_connection")
    row = dict(zip(names, own, strict=True))
    row |= dict(zip((f"baseline_{name}" for name in names), other, strict=True))
    # Of processor time: client and server take turns, and the client's part is the same.
    return row | {"ratio": other[1] / own[1]}


ROWS = {"restore": restore_row, "tls": tls_row}
