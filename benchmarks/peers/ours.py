"""headrace, by MQTT 5.0 with paho and its HTTP door."""

import contextlib
import json
import queue
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from broker import (
    DEADLINE_SECONDS,
    NO_WISH,
    PLAIN,
    CannotBeAskedError,
    Delivery,
    Mqtt,
    Terms,
    Wish,
    await_true,
)
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from headrace.adapters.children import unused
from headrace.bench.suite.peers.peer import Door
from headrace.bench.suite.peers.process import Child

TOLD = (
    "reason",
    "reason-detail",
    "x-source-queue",
    "x-source-message",
    "x-source-topic",
    "attempts",
)
IDS_IN_A_PUBLISH = 100


def user(packet: int, *pairs: tuple[str, str]) -> Properties:
    properties = Properties(packet)
    properties.UserProperty = list(pairs)
    return properties


class Worker:
    """A member of the group `workers`."""

    closed = False

    def __init__(self, port: int, name: str, prefetch: int) -> None:
        self._settle = f"$queue/{name}/$"
        self.client = Mqtt(port, paho.MQTTv5)
        terms = ("consumer-group", "workers"), ("prefetch", str(prefetch))
        self.client.subscribe(f"$queue/{name}", user(PacketTypes.SUBSCRIBE, *terms))

    def receive(self, seconds: float) -> Delivery | None:
        try:
            message = self.client.messages.get(timeout=seconds)
        except queue.Empty:
            return None
        told = dict(message.properties.UserProperty)
        shown = {name: told[name] for name in TOLD if name in told}
        return Delivery(message.payload.decode(), told["attempt"], shown, told["message-id"])

    def _say(self, verb: str, *pairs: tuple[str, str]) -> None:
        properties = user(PacketTypes.PUBLISH, *pairs)
        self.client.publish(self._settle + verb, [""], properties)

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        ids = [("message-id", str(each.handle)) for each in deliveries]
        for first in range(0, len(ids), IDS_IN_A_PUBLISH):
            self._say("ack", *ids[first : first + IDS_IN_A_PUBLISH])

    def nack(self, delivery: Delivery, delay: float | None = None) -> None:
        asked = [] if delay is None else [("delay", f"{round(delay * 1000)}ms")]
        self._say("nack", ("message-id", str(delivery.handle)), *asked)

    def reject(self, delivery: Delivery) -> None:
        self._say("reject", ("message-id", str(delivery.handle)), ("reason", "no such work"))

    def close(self) -> None:
        self.client.drop()


class Headrace:
    """A node."""

    name = "headrace"

    def __init__(self, folder: Path) -> None:
        mqtt, http = unused(2)
        self.mqtt, self._url = mqtt.port, f"http://{http}/api/v1/queues"
        command = [sys.executable, "-m", "headrace", "serve", "--data", str(folder / "data")]
        command += ["--mqtt", str(mqtt), "--http", str(http), "--ws", "off"]
        command += ["--kafka", "127.0.0.1:0", "--frame", "127.0.0.1:0"]
        self._server = Child("headrace", command, folder, {Door.MQTT: mqtt}, others=[http])
        self._deadline = DEADLINE_SECONDS

    def start(self) -> None:
        self._server.start()
        self._producer = Mqtt(self.mqtt, paho.MQTTv5)

    def kill(self) -> None:
        self._server.end(signal.SIGKILL)
        self._producer.drop()

    def stop(self) -> None:
        self._producer.drop()
        self._server.end()

    def version(self) -> str:
        command = [sys.executable, "-m", "headrace", "--version"]
        told = subprocess.run(command, capture_output=True, text=True, check=True)
        return told.stdout.split()[-1]

    @contextlib.contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        self._deadline, before = seconds, self._deadline
        yield
        self._deadline = before

    def make(self, queue: str, terms: Terms = PLAIN) -> None:
        settings: dict[str, object] = {"ack.deadline.ms": round(self._deadline * 1000)}
        if terms.attempts is not None:
            settings |= {"retry.attempts": terms.attempts, "retry.backoff.ms": 1}
        if terms.order is not None:
            settings["order"] = terms.order
        if terms.ttl is not None:
            settings["message.ttl.ms"] = round(terms.ttl * 1000)
        if terms.priorities:
            settings["priorities"] = "on"
        if terms.bound is not None:
            settings["depth.max.messages"] = terms.bound
        self._post({"name": queue, "settings": settings})

    def _post(self, body: dict[str, object], path: str = "") -> dict[str, Any]:
        data = json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as refused:
            with refused:
                raise CannotBeAskedError(
                    json.loads(refused.read())["detail"].partition(";")[0]
                ) from None

    def put(self, queue: str, bodies: Sequence[str], wish: Wish = NO_WISH) -> None:
        delay = None if wish.delay is None else f"{round(wish.delay * 1000)}ms"
        asked = {"partition-key": wish.key, "delay": delay, "dedup-id": wish.dedup}
        asked["priority"] = None if wish.priority is None else str(wish.priority)
        pairs = [(name, value) for name, value in asked.items() if value is not None]
        properties = user(PacketTypes.PUBLISH, *pairs) if pairs else None
        self._producer.publish(f"$queue/{queue}", bodies, properties)

    def consume(self, queue: str, prefetch: int = 10) -> Worker:
        return Worker(self.mqtt, queue, prefetch)

    def letters(self, queue: str) -> Worker:
        """They have a queue once there is one."""

        def are_there() -> bool:
            try:
                urllib.request.urlopen(f"{self._url}/{queue}.dlq", timeout=60).close()
            except urllib.error.HTTPError as none:
                none.close()
                return False
            return True

        await_true(are_there, "no dead letter", 5)
        return Worker(self.mqtt, f"{queue}.dlq", 10)

    def take_one(self, queue: str) -> Delivery | None:
        asked = {"group": "workers", "max": 1, "wait": "5s"}
        messages = self._post(asked, f"/{queue}/pull")["messages"]
        if not messages:
            return None
        (message,) = messages
        return Delivery(message["payload"], str(message["attempt"]))

    def mqtt_places(self, queue: str) -> tuple[str, str]:
        self.make(queue)
        return f"$queue/{queue}", f"$queue/{queue}?group=workers"
