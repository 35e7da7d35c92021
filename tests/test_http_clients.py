"""Sessions and retained messages over HTTP, with real clients on a real node."""

from urllib.parse import quote, urlencode

import pytest

from conftest import wait_for
from rawclient import RawConnection, RawMqtt

pytestmark = pytest.mark.slow

SESSIONS = "/api/v1/sessions"
RETAINED = "/api/v1/retained"
PUBLISH = "/api/v1/publish"


def retain(node, topic, payload):
    with RawMqtt(node.mqtt, "retainer") as client:
        client.socket.sendall(packet(0x33, text(topic), b"\x00\x01", payload))
        assert client.puback() == 1


def text(value):
    return len(value.encode()).to_bytes(2, "big") + value.encode()


def packet(kind, *parts):
    body = b"".join(parts)
    length = len(body)
    head = bytes([length] if length < 128 else [length & 127 | 128, length >> 7])
    return bytes([kind]) + head + body


def sessions(node, **asked):
    """All pages, by client."""
    found, start = {}, 0
    while start is not None:
        status, page = node.call("GET", f"{SESSIONS}?{urlencode(asked | {'start': start})}")
        assert status == 200
        names = [each["client"] for each in page["sessions"]]
        assert len(names) <= int(asked.get("limit", 100))
        assert not found.keys() & set(names)
        found |= {each["client"]: each for each in page["sessions"]}
        start = page["next"]
    return found


def test_sessions_are_listed_by_page_pattern_and_state(broker):
    with RawMqtt(broker.mqtt, "pump-1"), RawMqtt(broker.mqtt, "pump-2"), RawMqtt(broker.mqtt, "x"):
        assert sessions(broker, limit=1).keys() == {"pump-1", "pump-2", "x"}
        assert sessions(broker, client="pump-*").keys() == {"pump-1", "pump-2"}
        assert sessions(broker, state="away") == {}
        one = sessions(broker, client="x", state="connected")["x"]
    assert one["address"].startswith("127.0.0.1:")
    assert one["connected"]
    assert one["version"] in {"3.1.1", "5.0"}


def test_a_session_is_shown_disconnected_and_deleted(broker):
    will = text("gone") + text("bye")
    connect = packet(0x10, text("MQTT"), b"\x04\x04\x00\x1e", text("mortal/1"), will)
    path = f"{SESSIONS}/{quote('mortal/1', safe='')}"
    with RawMqtt(broker.mqtt, "watcher") as watcher:
        watcher.socket.sendall(packet(0x82, b"\x00\x01", text("gone"), b"\x00"))
        watcher.read(5)
        with RawConnection(broker.mqtt) as mortal:
            mortal.socket.sendall(connect)
            assert mortal.read(4) == b"\x20\x02\x00\x00"
            mortal.socket.sendall(packet(0x82, b"\x00\x01", text("a/#"), b"\x01"))
            mortal.read(5)
            status, shown = broker.call("GET", path)
            assert status == 200
            assert shown["filters"] == [
                {
                    "filter": "a/#",
                    "qos": 1,
                    "no_local": False,
                    "retain_as_published": False,
                    "identifier": 0,
                }
            ]
            assert shown["will"]["topic"] == "gone"
            assert shown["connection"]["keep_alive_seconds"] == 30
            assert shown["version"] == "3.1.1"
            done = broker.call("POST", f"{path}/disconnect")
            assert done == (200, {"disconnected": "mortal/1"})
            assert mortal.socket.recv(1) == b""
        assert watcher.read(11) == packet(0x30, text("gone"), b"bye")
        broker.call("POST", "/api/v1/publish", {"topic": "a/1", "payload": "x"})
        away = broker.call("GET", path)[1]
        assert (away["connected"], away["connection"], away["queued_messages"]) == (False, None, 1)
        status, answer = broker.call("POST", f"{path}/disconnect")
        assert (status, answer["error"]) == (409, "conflict")
        assert broker.call("DELETE", path) == (200, {"deleted": "mortal/1"})
        assert broker.call("GET", path)[0] == 404
        assert broker.call("DELETE", path)[0] == 404
        assert broker.call("POST", f"{path}/disconnect")[0] == 404
    log = broker.log.read_text()
    assert "disconnected by an administrator" in log
    assert "session deleted by an administrator" in log


def test_retained_messages_are_browsed_counted_and_deleted(broker):
    for number in range(5):
        retain(broker, f"rooms/{number}", f"2{number}°".encode())
    retain(broker, "other", b"\xff\x00")
    found, start = [], ""
    while start is not None:
        query = urlencode({"filter": "rooms/+", "limit": 2, "start": start, "excerpt": 3})
        status, page = broker.call("GET", f"{RETAINED}?{query}")
        assert status == 200
        found += page["messages"]
        start = page["next"]
    assert [each["topic"] for each in found] == [f"rooms/{number}" for number in range(5)]
    assert found[0] == {
        "topic": "rooms/0",
        "qos": 1,
        "bytes": 4,
        "expires_in_seconds": None,
        "payload": "20",
    }, "an excerpt ends before a character that it would cut"
    status, one = broker.call("GET", f"{RETAINED}/topics/rooms%2F3")
    assert (status, one["payload"]) == (200, "23°")
    assert broker.call("GET", f"{RETAINED}/topics/other")[1]["payload_base64"] == "/wA="
    assert broker.call("GET", f"{RETAINED}/count?filter=%23") == (200, {"count": 6})
    assert broker.call("DELETE", f"{RETAINED}?filter=rooms/%23") == (200, {"deleted": 5})
    assert broker.call("GET", f"{RETAINED}/count?filter=%23") == (200, {"count": 1})
    assert broker.call("GET", f"{RETAINED}/topics/rooms%2F3")[0] == 404
    assert broker.call("GET", f"{RETAINED}/topics/%2B")[0] == 404, "a filter is no topic"


def test_a_publish_over_http_is_retained_survives_and_is_cleared(start_node):
    """QoS 1 answers once that is durable; a bound that is reached is told by name."""
    node = start_node(HEADRACE_LIMITS__RETAINED_MESSAGES="1")
    kept = {"topic": "state/door", "payload": "open", "retain": True}
    assert node.call("POST", PUBLISH, kept) == (200, {"stored": 0})
    status, refused = node.call("POST", PUBLISH, kept | {"topic": "state/other"})
    assert (status, refused["error"]) == (409, "retained_limit")
    assert "limits.retained_messages" in refused["detail"]
    node.kill()
    node = start_node.again(node)
    assert node.call("GET", f"{RETAINED}/topics/state%2Fdoor")[1]["payload"] == "open"
    assert node.call("POST", PUBLISH, kept | {"payload": ""})[0] == 200
    assert node.call("GET", f"{RETAINED}/topics/state%2Fdoor")[0] == 404
    assert node.call("POST", PUBLISH, kept | {"retain": 1})[0] == 400


@pytest.mark.parametrize(
    ("method", "path", "detail"),
    [
        ("GET", f"{SESSIONS}?limit=0", "limit"),
        ("GET", f"{SESSIONS}?limit=1001", "limit"),
        ("GET", f"{SESSIONS}?state=asleep", "state"),
        ("GET", f"{SESSIONS}?clients=x", "did you mean 'client'?"),
        ("GET", f"{SESSIONS}?start=-1", "start"),
        ("GET", f"{RETAINED}?filter=a%23", "filter"),
        ("GET", f"{RETAINED}?excerpt=9999", "excerpt"),
        ("GET", f"{RETAINED}/count", "filter"),
        ("DELETE", RETAINED, "filter"),
        ("DELETE", f"{RETAINED}?filter=", "filter"),
    ],
)
def test_a_wrong_query_is_told_where(shared, method, path, detail):
    status, answer = shared.call(method, path)
    assert status == 400
    assert detail in answer["detail"]


def test_what_ends_by_itself_is_gone_from_the_list(broker):
    with RawMqtt(broker.mqtt, "short"):
        assert sessions(broker).keys() == {"short"}
    wait_for(lambda: not sessions(broker))


def test_the_longest_client_id_can_be_managed(shared):
    name = "ü" * 32_000
    with RawMqtt(shared.mqtt, name):
        path = f"{SESSIONS}/{quote(name, safe='')}"
        assert shared.call("GET", path)[1]["client"] == name
        assert shared.call("DELETE", path) == (200, {"deleted": name})
