"""kafkajs, the client of Node.js, makes its round trip: plain, and over TLS and SASL."""

import json
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from conftest import RunningNode
from test_access import ADMIN, put_users

pytestmark = [pytest.mark.clients, pytest.mark.slow]

CLIENTS = Path(__file__).parent / "clients"
COUNT = 200


def round_trip(node, codec, *access):
    """Compares what the client saw with what must be; its topic, which is gone."""
    program = shutil.which("node")
    assert program, "install nodejs"
    assert (CLIENTS / "node_modules" / "kafkajs").is_dir(), "run `npm install` in tests/clients"
    topic = f"js-{uuid.uuid4().hex[:8]}"
    arguments = [f"localhost:{node.kafka}", topic, str(COUNT), codec]
    done = subprocess.run(
        [program, str(CLIENTS / "kafkajs_round_trip.js"), *arguments, *access],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["clusterId"] == "headrace"
    keys = {f"key-{number}": (f"value-{number}", str(number)) for number in range(COUNT)}
    assert {key: (value, number) for _, key, value, number in told["got"]} == keys
    assert len(told["got"]) == COUNT
    assert {partition for partition, *_ in told["got"]} == {0, 1}
    assert sum(told["committed"]) == told["ends"] == told["times"] == COUNT
    assert (told["setting"], told["low"]) == ("1000", 5)
    assert told["acls"] == ([1, 0] if access else None)
    return topic


@pytest.mark.shows("kafkajs", "none gzip", "idempotence", "acks", "consume", "offsets", "commits")
@pytest.mark.shows("kafkajs", "topics", "partitions", "settings", "records deleted", "cluster")
@pytest.mark.shows("kafkajs", "groups managed")
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_kafkajs_produces_and_consumes(shared, codec):
    topic = round_trip(shared, codec)
    assert shared.ends(f"{topic}-acks") == [3]


@pytest.mark.shows("kafkajs", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "TLS", "ACLs")
def test_kafkajs_is_let_in(tmp_path, authority, server):
    put_users(tmp_path / "data", {ADMIN: ["admin"]})
    certificate, key = map(str, server)
    tls = {"HEADRACE_KAFKA__TLS_CERTIFICATE": certificate, "HEADRACE_KAFKA__TLS_KEY": key}
    node = RunningNode(tmp_path / "data", **tls)
    name, _, password = ADMIN.partition(":")
    try:
        for mechanism in ("plain", "scram-sha-256", "scram-sha-512"):
            round_trip(node, "none", mechanism, name, password, str(authority.file))
    finally:
        node.close()
