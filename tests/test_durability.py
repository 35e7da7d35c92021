"""Acknowledged means on disk: read from the system calls of a real broker.

One broker runs under strace, takes MQTT publishes and Kafka produces, and is killed with SIGKILL.
Its trace answers two questions. Did each acknowledgement leave after the fdatasync that covers its
message? And would every acknowledged message be there had the power gone at that moment, when
every byte that was not synced is lost, kept or torn?
"""

import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import environment, soaked
from headrace import limits
from headrace.client import FetchClient
from headrace.native import decode_records
from rawclient import RawMqtt, RawProducer
from syscalls import Call, Disk, read_trace, strace_command

pytestmark = pytest.mark.slow

STREAM = "gpu-telemetry"
SINGLE, PIPELINED, PRODUCED = 25, 150, 15
LARGE = limits.DIRECT_WRITE_BYTES
"""Bytes of a message that goes past the journal, straight to its segment."""
CUTS, CUTS_SOAKED = 10, 120
SEED = int(os.environ.get("HEADRACE_SEED", "20261127"))


@dataclass(frozen=True)
class Acknowledged:
    """A message and the call that began to send its acknowledgement."""

    token: bytes
    sent: Call


@dataclass(frozen=True)
class Run:
    data: Path
    calls: list[Call]
    acknowledged: list[Acknowledged]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("durability")
    data, trace = folder / "data", folder / "trace"
    command = [sys.executable, "-m", "headrace", "serve", "--json", "--data", str(data)]
    command += ["--mqtt", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    # Small, so that the trace is: a preallocated journal is written in full when it is made.
    small = environment(
        HEADRACE_LOG__JOURNAL_BYTES="4MiB", HEADRACE_LOG__DIRECT_WRITE_BYTES="256KiB"
    )
    with (
        (folder / "stderr").open("wb") as stderr,
        subprocess.Popen(
            strace_command(trace, command), stdout=subprocess.PIPE, stderr=stderr, env=small
        ) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (folder / "stderr").read_text()
        ready = json.loads(line)
        try:
            tokens = drive(_port(ready["mqtt"]), _port(ready["kafka"]))
        finally:
            os.kill(int((data / "headrace.lock").read_text()), signal.SIGKILL)
    calls = read_trace(trace)
    return Run(data, calls, [_acknowledgement(calls, *each) for each in tokens])


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def topic(number: int) -> str:
    return f"dcgm/host/GPU-{number % 20}/DCGM_FI_DEV_GPU_UTIL"


def drive(mqtt_port: int, kafka_port: int) -> list[tuple[bytes, int, bytes]]:
    """Publishes and waits for every acknowledgement: `(token, client port, acknowledgement)`."""
    tokens = []
    with RawMqtt(mqtt_port, "one-by-one") as client:
        for packet_id in range(1, SINGLE + 1):
            token = b"token-single-%d." % packet_id
            client.publish(topic(packet_id), token, packet_id)
            assert client.puback() == packet_id
            tokens.append((token, client.local_port, b"\x40\x02" + struct.pack(">H", packet_id)))
        token = b"token-large."
        client.publish(topic(7), token + bytes(LARGE), 1000)
        assert client.puback() == 1000
        tokens.append((token, client.local_port, b"\x40\x02" + struct.pack(">H", 1000)))
    with RawMqtt(mqtt_port, "pipelined") as client:
        for packet_id in range(1, PIPELINED + 1):
            client.publish(topic(packet_id), b"token-pipelined-%d." % packet_id, packet_id)
        for packet_id in range(1, PIPELINED + 1):
            assert client.puback() == packet_id
            acknowledgement = b"\x40\x02" + struct.pack(">H", packet_id)
            tokens.append((b"token-pipelined-%d." % packet_id, client.local_port, acknowledgement))
    with RawProducer(kafka_port) as producer:
        for number in range(PRODUCED):
            token = b"token-produced-%d." % number
            producer.send(STREAM, number % 12, token, 7_000_000 + number)
            tokens.append((token, producer.local_port, struct.pack(">i", 7_000_000 + number)))
    # Once one more client was answered, the call that sent the last acknowledgement has ended,
    # and the trace holds all of it.
    with RawMqtt(mqtt_port, "last"):
        pass
    return tokens


def _acknowledgement(calls: list[Call], token: bytes, port: int, marker: bytes) -> Acknowledged:
    sends = [c for c in calls if f":{port}]" in c.target and marker in c.data]
    assert sends, f"no acknowledgement of {token!r} in the trace"
    return Acknowledged(token, sends[0])


def uncovered(run: Run, calls: list[Call]) -> list[bytes]:
    """Messages whose acknowledgement no earlier fdatasync of their bytes covers."""
    writes = [c for c in calls if c.target.startswith(f"{run.data}/") and b"token-" in c.data]
    syncs = [c for c in calls if c.name in {"fdatasync", "fsync"} and c.result == 0]

    def covered(message: Acknowledged) -> bool:
        return any(
            write.end < sync.begin and sync.end < message.sent.begin
            for write in writes
            if message.token in write.data
            for sync in syncs
            if sync.target == write.target
        )

    return [message.token for message in run.acknowledged if not covered(message)]


def test_every_acknowledgement_follows_the_fdatasync_that_covers_its_message(run: Run) -> None:
    assert not uncovered(run, run.calls)


def test_a_large_message_is_written_once_to_its_segment(run: Run) -> None:
    large = [c for c in run.calls if c.name == "pwrite64" and len(c.data) > LARGE // 2]
    written = [c.target.rpartition(".")[2] for c in large if bytes(LARGE // 2) in c.data]
    assert written.count("log") == 1
    assert all("/journal/" not in c.target for c in large if b"token-large." in c.data)


def test_the_check_of_acknowledgements_can_fail(run: Run) -> None:
    """One journal sync that never was leaves the messages that it covered bare."""
    journal_syncs = [c for c in run.calls if c.name == "fdatasync" and "/journal/" in c.target]
    lost = journal_syncs[-1]
    later = [call for call in run.calls if call is not lost and call.begin < lost.end]
    assert uncovered(run, later)


def test_one_fdatasync_covers_many_pipelined_messages(run: Run) -> None:
    sends = [a.sent.end for a in run.acknowledged if b"pipelined" in a.token]
    first = min(c.begin for c in run.calls if b"token-pipelined-1." in c.data)
    syncs = [
        c for c in run.calls if c.name == "fdatasync" and first < c.begin and c.end < max(sends)
    ]
    assert 0 < len(syncs) < PIPELINED / 2, "group commit does not group"


@pytest.mark.parametrize("unsynced", [soaked("lost"), "lost, kept or torn"])
@pytest.mark.parametrize("count", [CUTS, soaked(CUTS_SOAKED)])
def test_a_power_cut_at_any_moment_leaves_every_acknowledged_message(
    run: Run, unsynced: str, count: int, tmp_path: Path, start_node
) -> None:
    rng = random.Random(SEED)
    cuts = sorted({0, len(run.acknowledged) - 1, *rng.sample(range(len(run.acknowledged)), count)})
    disk, position = Disk(run.data), 0
    in_order = sorted(run.acknowledged, key=lambda each: each.sent.begin)
    for cut in cuts:
        moment = in_order[cut].sent.begin
        while position < len(run.calls) and run.calls[position].end < moment:
            disk.apply(run.calls[position])
            position += 1
        image = tmp_path / f"cut-{cut}"
        disk.power_cut(image, None if unsynced == "lost" else rng)
        node = start_node(data=image)
        found = _stored_tokens(node.servers)
        node.kill()
        shutil.rmtree(image)
        assert len(found) == len(set(found)), f"cut {cut} (seed {SEED}): a message twice"
        missing = {each.token for each in in_order[: cut + 1]} - set(found)
        assert not missing, f"cut {cut} (seed {SEED}): acknowledged and lost: {sorted(missing)}"


def _stored_tokens(servers: str) -> list[bytes]:
    found = []
    with FetchClient(servers) as client:
        for partition, end in client.latest_offsets(STREAM).items():
            offset = 0
            while offset < end:
                data = client.fetch(STREAM, partition, offset, 1 << 20, 0)
                columns = decode_records(data, offset, end, 1 << 20)
                found += [row[3].partition(b".")[0] + b"." for row in columns.rows()]
                offset = columns.next_offset
    return found
