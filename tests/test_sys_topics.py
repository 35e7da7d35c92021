"""`$SYS/broker` on a node: live, kept for who comes later, and nobody else's to publish."""

import pytest

from test_mqtt_routing import V5, V311, Client

NOT_AUTHORIZED = 0x87


@pytest.mark.setting("mqtt.sys_interval")
def test_it_is_live_at_its_interval(start_node):
    node = start_node(HEADRACE_MQTT__SYS_INTERVAL="50ms")
    with Client(node) as watcher, Client(node) as other:
        watcher.subscribe("$SYS/broker/publish/messages/received", 0)
        counts = [int(watcher.receive().payload)]
        for _ in range(3):
            other.publish("t", b"x", 1)
            counts.append(int(watcher.receive().payload))
    assert counts == sorted(set(counts))


@pytest.mark.setting("mqtt.sys_interval")
def test_it_can_be_switched_off(start_node):
    node = start_node(HEADRACE_MQTT__SYS_INTERVAL="0s")
    with Client(node) as client:
        client.subscribe("$SYS/#", 0)
        client.subscribe("t", 0)
        client.publish("t", b"last", 1)
        assert client.receive().topic == "t"


@pytest.mark.parametrize("protocol", [V311, V5])
def test_it_is_there_for_who_comes_later_and_under_no_leading_wildcard(shared, protocol):
    with Client(shared, protocol=protocol) as client:
        client.subscribe("$SYS/broker/version", 2)
        version = client.receive()
        assert version.payload.startswith(b"headrace version ")
        assert (version.retain, version.qos) == (True, 0)
        for topic_filter in ("#", "+/broker/version", "$SYS/broker/nothing"):
            client.subscribe(topic_filter, 0)
        client.publish("t", b"last", 1)
        assert client.receive().topic == "t"


def test_clients_cannot_publish_there(shared):
    with Client(shared) as client:
        client.subscribe("$SYS/broker/uptime", 0)
        client.receive()
        assert client.publish("$SYS/broker/uptime", b"x", 1) == NOT_AUTHORIZED
    assert shared.metrics()["headrace_mqtt_retained_messages"] == 0
