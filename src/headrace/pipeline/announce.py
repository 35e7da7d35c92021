"""Publishes alerts to a broker: retained while they are open, each change at most once.

The shell around `alerts`, on a thread of its own: a broker that is away holds up no micro-batch.
QoS 2 over a session that outlives its connections says each change once for as long as the process
lives. The next process asks the broker for its retained messages, which tell what is missing: it
may be another broker, or an emptied one. Where nobody may read them, a mark in the tables tells up
to which version that broker was told all: what the next version changed is said as it is, and of
several all that is open. An end that was cut off from its cleared topic by a crash
is not said again.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self
from uuid import uuid4

from paho.mqtt.subscribeoptions import SubscribeOptions

from headrace import job_limits
from headrace.client.mqtt import Connection, Target
from headrace.errors import MqttError
from headrace.model import Address
from headrace.pipeline import alerts
from headrace.pipeline import manifest as manifests
from headrace.pipeline.folder import Folder
from headrace.pipeline.manifest import FOLDER
from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from paho.mqtt.client import MQTTMessage
    from paho.mqtt.reasoncodes import ReasonCode

    from headrace.client import Login
    from headrace.pipeline.alerts import Change
    from headrace.pipeline.folder import Location
    from headrace.pipeline.manifest import Manifest

_MARK: Final = f"{FOLDER}/alerts"
_QOS: Final = 2
_REFUSED: Final = 0x80
"""Reason codes from here on are refusals (MQTT 5.0 2.4)."""

_STEP_SECONDS: Final = 0.2


class Announcer:
    """Says what changed, version by version; use it as a context manager.

    Args:
        tables_dir: location of the tables.
        mqtt: MQTT door, `HOST:PORT`.
        login: user and password, where the broker asks for them.
        on_trouble: is told in a line what a person should know: who is away, who refuses.
    """

    def __init__(
        self,
        tables_dir: Location,
        mqtt: str,
        login: Login | None,
        on_trouble: Callable[[str], None],
    ) -> None:
        address = Address.parse(mqtt, such_as=1883)
        self._folder = Folder.at(tables_dir)
        self._where = mqtt
        self._on_trouble = on_trouble
        self._last_trouble = ""
        self._waiting: deque[Manifest] = deque()
        self._caught_up = False
        self._unsaid: deque[tuple[str, str, bool]] = deque()
        """Topic, payload, whether retained: of the version that is being said."""
        self._saying: Manifest | None = None
        self._unanswered: set[int] = set()
        self._closing = threading.Event()
        self._connection = Connection(
            Target(
                host=address.host,
                port=address.port,
                client_id=f"headrace-alerts-{uuid4().hex}",
                username=None if login is None else login.user,
                password=None if login is None else login.password,
                clean=False,
                session_expiry_s=job_limits.PIPELINE_ALERTS_SESSION_SECONDS,
            )
        )
        self._connection.on_acknowledged = self._on_acknowledged
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)

    def told(self, manifest: Manifest) -> None:
        """Takes a version that was committed; the first time, the newest there is at the start."""
        is_first = self._thread.ident is None
        if is_first or manifest.alerts_version == manifest.version:
            self._waiting.append(manifest)
        if is_first:
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Waits until all is said, but not for long where the broker is away."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(job_limits.PIPELINE_ALERTS_CLOSE_SECONDS)
        if self._waiting or self._unsaid or self._unanswered:
            self._on_trouble(
                f"alerts: {self._where} did not take all; the next run says what it lacks then"
            )

    def _run(self) -> None:
        pause = job_limits.COLLECT_BACKOFF_SECONDS_MIN
        while True:
            try:
                self._connection.connect()
                self._serve()
            except MqttError as error:
                self._trouble(str(error).splitlines()[0])
                if not error.retriable or self._closing.is_set():
                    return
            else:
                self._connection.__exit__()
                return
            self._closing.wait(pause)
            pause = min(2 * pause, job_limits.COLLECT_BACKOFF_SECONDS_MAX)

    def _serve(self) -> None:
        while True:
            if self._unsaid:
                self._publish(*self._unsaid[0])
                self._unsaid.popleft()
            elif self._unanswered:
                self._connection.step(_STEP_SECONDS)
            elif self._saying is not None:
                self._mark(self._saying)
                self._saying = None
            elif self._waiting:
                self._begin(self._waiting[0])
            elif self._closing.is_set():
                return
            else:
                self._connection.step(_STEP_SECONDS)

    def _begin(self, manifest: Manifest) -> None:
        """Takes what a version changed apart, into what is to be published."""
        changes: Sequence[Change] = manifest.changes
        if not self._caught_up:
            changes = self._missed(manifest)
            self._caught_up = True
        self._waiting.popleft()
        for change in changes:
            if change.state != "open":
                # First: a crash in between leaves no alert that nobody takes back.
                self._unsaid.append((change.topic, "", True))
            self._unsaid.append((change.topic, change.payload, change.state == "open"))
        self._saying = manifest

    def _publish(self, topic: str, payload: str, retain: bool) -> None:
        self._connection.step(0.0)  # fails where there is no connection, before it is queued
        packet_id = self._connection.publish(topic, payload.encode(), _QOS, retain=retain)
        self._unanswered.add(packet_id)

    def _mark(self, manifest: Manifest) -> None:
        """Notes that this broker was told all, until a version."""
        if manifest.alerts_version < 0:
            return
        try:
            self._folder.write_text(_MARK, f"{manifest.alerts_version} {self._where}")
        except OSError as error:
            self._trouble(f"{self._folder.shown(_MARK)} cannot be written: {error}")

    def _marked(self) -> int | None:
        """Up to which version this broker was told all, by the mark; None where that is unknown."""
        try:
            version, where = self._folder.text(_MARK).split()
            return int(version) if where == self._where else None
        except (OSError, ValueError):
            return None

    def _missed(self, manifest: Manifest) -> Sequence[Change]:
        """What the broker has not heard from an earlier process."""
        if manifest.alerts_version < 0:
            return []
        retained = self._retained(manifest.query)
        if retained is None and (marked := self._marked()) is not None:
            if marked >= manifest.alerts_version:
                return []
            if marked == self._alerts_version_before(manifest):
                return manifest.changes
        return alerts.missed(manifest.alerts, retained, manifest.changes)

    def _alerts_version_before(self, manifest: Manifest) -> int | None:
        """The version that changed alerts before the last one that did; None if that is gone."""
        try:
            return manifests.load(self._folder, manifest.alerts_version - 1).alerts_version
        except PipelineError:
            return None

    def _retained(self, query: str) -> dict[str, str] | None:
        """The broker's retained alerts of this query; None where it lets nobody read them."""
        found: dict[str, str] = {}
        last = [time.monotonic()]

        def on_message(message: MQTTMessage) -> None:
            last[0] = time.monotonic()
            self._connection.acknowledge(message)
            text = message.payload.decode(errors="replace")
            with suppress(ValueError, AttributeError, RecursionError):  # of somebody else
                said = json.loads(text)
                is_ours = said.get("query") == query and isinstance(said.get("id"), str)
                if message.retain and is_ours:
                    found[message.topic] = text

        self._connection.on_message = on_message
        topics = [f"{alerts.TOPICS}/#"]
        [code] = self._connection.subscribe(topics, SubscribeOptions(qos=1, noLocal=True))
        if code.value >= _REFUSED:
            self._trouble(f"{self._where} lets nobody read what alerts it holds: {code}")
            return None
        while time.monotonic() - last[0] < job_limits.PIPELINE_ALERTS_QUIET_SECONDS:
            self._connection.step(_STEP_SECONDS)
        self._connection.unsubscribe(topics)
        return found

    def _on_acknowledged(self, packet_id: int, code: ReasonCode, told: str) -> None:
        self._unanswered.discard(packet_id)
        if code.value >= _REFUSED:
            self._trouble(f"{self._where} refuses alerts: {told or code}")

    def _trouble(self, text: str) -> None:
        if text != self._last_trouble:
            self._last_trouble = text
            self._on_trouble(f"alerts: {text}")
