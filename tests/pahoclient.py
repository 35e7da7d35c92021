"""paho-mqtt as tests use it: each call waits for what the broker answers."""

import queue

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

WAIT = 30
V311, V5 = paho.MQTTv311, paho.MQTTv5


def leave(client: paho.Client) -> None:
    """DISCONNECT, and the end."""
    client.disconnect()
    drop(client)


def drop(client: paho.Client) -> None:
    """The end without DISCONNECT.

    paho closes its sockets when it is collected, or the collector has them first and warns: amid
    another test.
    """
    client.loop_stop()
    client._reset_sockets()


class Client:
    """paho-mqtt with blocking calls: each waits for the broker's answer."""

    def __init__(self, node, protocol=V5, client_id="", **options):
        self.events: queue.Queue = queue.Queue()
        self.messages: queue.Queue = queue.Queue()
        version = paho.CallbackAPIVersion.VERSION2
        clean = {} if protocol == V5 else {"clean_session": True}
        self.paho = paho.Client(version, client_id, protocol=protocol, **clean)
        self.paho.on_connect = lambda *event: self.events.put(("connect", event))
        self.paho.on_disconnect = lambda *event: self.events.put(("disconnect", event))
        self.paho.on_subscribe = lambda *event: self.events.put(("subscribe", event))
        self.paho.on_unsubscribe = lambda *event: self.events.put(("unsubscribe", event))
        self.paho.on_publish = lambda *event: self.events.put(("publish", event))
        self.paho.on_message = lambda _client, _data, message: self.messages.put(message)
        self.paho.manual_ack_set(options.pop("manual_ack", False))
        if "will" in options:
            self.paho.will_set(*options.pop("will"))
        self.paho.connect("127.0.0.1", node.mqtt, **options)
        self.paho.loop_start()
        _, _, flags, reason, self.properties = self.event("connect")
        assert not reason.is_failure, reason
        assert not flags.session_present

    def __enter__(self):
        return self

    def __exit__(self, *_):
        leave(self.paho)

    def event(self, kind):
        got, event = self.events.get(timeout=WAIT)
        assert got == kind, event
        return event

    def subscribe(self, topic_filter, qos=1, *user):
        """The reason code of the one filter."""
        properties = None
        if user:
            properties = Properties(PacketTypes.SUBSCRIBE)
            properties.UserProperty = list(user)
        self.paho.subscribe(topic_filter, qos, properties=properties)
        return self.event("subscribe")[3][0].value

    def unsubscribe(self, topic_filter):
        self.paho.unsubscribe(topic_filter)
        self.event("unsubscribe")

    def publish(self, topic, payload=b"x", qos=1, **options):
        """The reason code of PUBACK."""
        self.paho.publish(topic, payload, qos, **options)
        return self.event("publish")[3].value

    def receive(self):
        return self.messages.get(timeout=WAIT)

    def puback(self, message):
        """Acknowledges a message at QoS 1, where `manual_ack` leaves it to the test."""
        self.paho.ack(message.mid, message.qos)


def user_property(message, name):
    """Its value, or the last of them, for those of the broker stand last."""
    return [value for key, value in message.properties.UserProperty if key == name][-1]


def publish_properties(*user, **named):
    properties = Properties(PacketTypes.PUBLISH)
    if user:
        properties.UserProperty = list(user)
    for name, value in named.items():
        setattr(properties, name, value)
    return properties
