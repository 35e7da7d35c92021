"""A disk that fills up: appends are refused in time, all else goes on, and they come back."""

import asyncio
import os
import queue
import shutil

import paho.mqtt.client as paho
import pytest
from confluent_kafka import KafkaError, Producer

from conftest import headrace, wait_for
from headrace import limits
from headrace.client import DeadlineError, FetchClient
from headrace.client import Producer as HeadraceProducer
from pahoclient import leave
from rawclient import RawConnection, RawMqtt

pytestmark = pytest.mark.slow

MARGIN_BYTES = 48 * limits.MIB
"""Between what is free and the reserve: the node's own files, and the way back, fit in."""


def ready(node):
    status, answer = node.call("GET", "/ready")
    assert status == 200
    return answer["reason"]


def publish(node, payload=b"x"):
    return node.call("POST", "/api/v1/publish", {"topic": "a", "payload": payload.decode()})


def puback(node) -> int:
    """The reason code of an MQTT 5.0 publish at QoS 1."""
    codes = queue.Queue()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.on_connect = lambda *_: client.publish("a", b"x", qos=1)
    client.on_publish = lambda *event: codes.put(event[3].value)
    client.connect("127.0.0.1", node.mqtt)
    client.loop_start()
    code = codes.get(timeout=30)
    leave(client)
    return code


def produced(node) -> list[KafkaError | None]:
    """How one produce request without a repetition ends."""
    outcome = []
    producer = Producer({"bootstrap.servers": node.servers, "retries": 0})
    producer.produce("a", b"x", on_delivery=lambda error, _: outcome.append(error))
    producer.flush(30)
    return outcome


@pytest.mark.setting("log.reserve_bytes")
def test_a_nearly_full_disk_refuses_messages_until_there_is_room(memory_folder, start_node):
    reserve = shutil.disk_usage(memory_folder).free - MARGIN_BYTES
    node = start_node(data=memory_folder / "data", HEADRACE_LOG__RESERVE_BYTES=str(reserve))
    node.create_stream("a", filters=["a"])
    node.create_stream("old")
    assert publish(node)[0] == 200
    assert ready(node) == ""

    filler = memory_folder / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, MARGIN_BYTES - 8 * limits.MIB)
    wait_for(lambda: "bytes left (log.reserve_bytes)" in ready(node))
    status, problem = publish(node)
    assert status == 503
    assert "nothing more is stored until there is room" in problem["detail"]
    assert puback(node) == 0x97
    (error,) = produced(node)
    assert error.code() == KafkaError.KAFKA_STORAGE_ERROR
    with RawMqtt(node.mqtt, "old-protocol") as client:  # its PUBACK cannot say no
        client.publish("a", b"x", 1)
        with pytest.raises(ConnectionError):
            client.puback()
    metrics = node.metrics()
    assert metrics['headrace_log_appends_refused_total{reason="disk_full"}'] >= 4
    assert metrics['headrace_mqtt_messages_dropped_total{reason="disk_full"}'] >= 3
    assert metrics["headrace_log_free_bytes"] < reserve

    with FetchClient(node.servers) as client:
        assert client.fetch("a", 0, 0, limits.MIB, 0)
    assert node.call("DELETE", "/api/v1/streams/old")[0] == 200
    filler.unlink()
    wait_for(lambda: ready(node) == "")
    assert publish(node)[0] == 200
    assert puback(node) == 0
    assert produced(node) == [None]
    assert node.stop() == 0
    log = node.log.read_text()
    assert log.count("nothing more is stored until there is room") == 1
    assert log.count("there is room on the disk again") == 1


def test_a_node_that_starts_on_a_full_disk_serves_readers(start_node):
    node = start_node()
    node.create_stream("a", filters=["a"])
    assert publish(node)[0] == 200
    assert node.stop() == 0
    node = start_node.again(node, HEADRACE_LOG__RESERVE_BYTES="1024GiB")
    assert "bytes left (log.reserve_bytes)" in ready(node)
    assert publish(node)[0] == 503
    with FetchClient(node.servers) as client:
        assert client.fetch("a", 0, 0, limits.MIB, 0)


def test_the_command_s_publish_says_why_a_full_disk_refuses_it(start_node):
    node = start_node()
    node.create_stream("a", filters=["a"])
    assert node.stop() == 0
    node = start_node.again(node, HEADRACE_LOG__RESERVE_BYTES="1024GiB")
    for qos in ("1", "2"):
        done = headrace("pub", "-p", str(node.mqtt), "-t", "a", "-m", "x", "-q", qos)
        assert done.returncode == 1
        told = "quota exceeded (0x97); not stored: the broker's disk is nearly full"
        assert told in done.stderr


def test_an_idempotent_producer_says_what_a_full_disk_keeps_from_it(start_node):
    node = start_node(HEADRACE_LOG__RESERVE_BYTES="1024GiB")

    async def start():
        async with HeadraceProducer(bootstrap_servers=node.servers, default_api_timeout_ms=500):
            pass

    with pytest.raises(DeadlineError, match="can give out none now, as while its disk is nearly"):
        asyncio.run(start())


def test_who_begins_a_group_on_a_full_disk_hears_why_it_cannot(start_node):
    node = start_node()
    assert node.call("POST", "/api/v1/queues", {"name": "jobs"})[0] == 201
    assert node.stop() == 0
    node = start_node.again(node, HEADRACE_LOG__RESERVE_BYTES="1024GiB")
    told = queue.Queue()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.on_connect = lambda *_: client.subscribe("$queue/jobs", qos=1)
    client.on_disconnect = lambda _client, _data, flags, code, properties: told.put(
        (flags.is_disconnect_packet_from_server, code.value, properties.ReasonString)
    )
    client.reconnect_on_failure = False
    client.connect("127.0.0.1", node.mqtt)
    client.loop_start()
    assert told.get(timeout=30) == (True, 0x97, "not stored: the broker's disk is nearly full")
    client.loop_stop()


def test_who_clears_retained_messages_on_a_full_disk_is_told(start_node):
    node = start_node()
    headrace("pub", "-p", str(node.mqtt), "-t", "a", "-m", "x", "-q", "1", "-r")
    assert node.stop() == 0
    node = start_node.again(node, HEADRACE_LOG__RESERVE_BYTES="1024GiB")
    args = ["-t", "a", "--remove-retained", "-C", "1", "-W", "30"]
    done = headrace("sub", "-p", str(node.mqtt), *args)
    assert done.returncode == 1
    assert "refuses to clear a: quota exceeded (0x97)" in done.stderr


def test_who_asks_for_a_session_on_a_full_disk_is_refused_by_connack(start_node):
    """All of them; that a round counts whole is in `test_node_sessions.py`."""
    node = start_node()
    assert node.stop() == 0
    node = start_node.again(node, HEADRACE_LOG__RESERVE_BYTES="1024GiB")
    clients = [RawConnection(node.mqtt) for _ in range(20)]
    for number, client in enumerate(clients):
        body = b"\x00\x04MQTT\x04\x00\x00\x00\x00\x02" + f"{number:02}".encode()
        client.socket.sendall(b"\x10" + bytes([len(body)]) + body)
    for client in clients:
        with client:
            assert client.read(4) == b"\x20\x02\x00\x03", "server unavailable"
            assert client.socket.recv(1) == b""
    assert node.metrics()["headrace_mqtt_undurable_bytes"] == 0
    with RawMqtt(node.mqtt, "leaves nothing"):
        assert node.stop() == 0
    assert "Traceback" not in node.log.read_text()
