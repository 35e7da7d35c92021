"""`headrace sub`: messages from an MQTT broker."""

from __future__ import annotations

import math
import random
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click
from paho.mqtt.client import topic_matches_sub
from paho.mqtt.subscribeoptions import SubscribeOptions

from headrace.cli.filters import check_filter
from headrace.cli.mqtt_format import as_json as as_json_lines
from headrace.cli.mqtt_format import formatted, plain
from headrace.cli.mqtt_options import MqttCommand, Seconds, broker_options, qos_option, target
from headrace.cli.terminal import visible_bytes
from headrace.client.mqtt import V5, Connection, named
from headrace.errors import MqttError

if TYPE_CHECKING:
    from paho.mqtt.client import MQTTMessage
    from paho.mqtt.reasoncodes import ReasonCode

    from headrace.cli.mqtt_format import Write

WAIT_S: Final = 1.0
"""Between two looks at the clock and at signals; whatever comes is dealt with at once."""

AGAIN_S_MAX: Final = 30.0
"""Between two attempts to connect, of which the first waits 1 s and each other twice as long."""

JSON_INDENT: Final = 2
"""Of `--pretty`."""

STREAM: Final = "$stream/"
"""What filters begin with that read a stream."""

QUEUE: Final = "$queue/"
"""What filters begin with that consume from a queue."""

GROUP_GONE: Final = (
    "and the group of the queue went with it; ?group=NAME behind the queue's keeps one"
)
"""What is said where a connection that broke is not made again."""

OFFSET: Final = "stream-offset"
TIME: Final = "stream-time"
"""User properties of SUBSCRIBE that say where."""

RETAIN_HANDLING: Final = {"always": 0, "new": 1, "never": 2}


class _EndError(Exception):
    """A signal asked to end."""


@click.command(cls=MqttCommand, short_help="Print messages of an MQTT broker.")
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="FILTER",
    help="Topics: + is one level, # the rest. [repeat]",
)
@qos_option
@click.option("-v", "--verbose", is_flag=True, help="Print topics, too.")
@click.option(
    "-F",
    "--format",
    "layout",
    metavar="FORMAT",
    help="%t topic, %p payload, %q QoS, %r retain, %I time, %j JSON, … see below.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each message.")
@click.option("--pretty", is_flag=True, help="Spread JSON over lines.")
@click.option("-N", "no_end", is_flag=True, help="No end of line behind a message.")
@click.option("-C", "count", type=click.IntRange(1), metavar="N", help="End after N messages.")
@click.option(
    "-W",
    "seconds",
    type=Seconds(0, min_open=True),
    metavar="SECONDS",
    help="End after this time; with -C it then has failed.",
)
@click.option("-E", "only_subscribes", is_flag=True, help="End once it is subscribed.")
@click.option(
    "--from",
    "starts",
    multiple=True,
    metavar="WHERE",
    help="Where $stream/NAME/# begins: earliest, latest, OFFSET, PARTITION:OFFSET, or a time "
    "(RFC 3339). [repeat]",
)
@click.option("-R", "no_retained", is_flag=True, help="Print no retained messages.")
@click.option("--retained-only", is_flag=True, help="Only those; end at the first other one.")
@click.option("--remove-retained", is_flag=True, help="Clear each retained message that comes.")
@click.option("--retain-as-published", is_flag=True, help="Keep the retain flag as published.")
@click.option(
    "--retain-handling",
    type=click.Choice(list(RETAIN_HANDLING)),
    default="always",
    show_default=True,
    help="When retained messages are to come.",
)
@click.option("--no-local", is_flag=True, help="Nothing that this client id has published.")
@click.option(
    "-T",
    "--filter-out",
    "left_out",
    multiple=True,
    metavar="FILTER",
    help="Leave out these topics. [repeat]",
)
@click.option(
    "-U",
    "--unsubscribe",
    "unsubscribed",
    multiple=True,
    metavar="FILTER",
    help="Unsubscribe from these. [repeat]",
)
@click.option(
    "--random-filter",
    type=Seconds(0, 100, min_open=True),
    default=100.0,
    metavar="PERCENT",
    help="Print this share of the messages.",
)
@broker_options
def sub(**given: Any) -> None:  # noqa: ANN401 - click's
    """Subscribe at an MQTT broker and print what comes, with the options of mosquitto_sub.

    A message is acknowledged once it is written: with -c and -i nothing is lost when whoever
    reads the output ends, nor beyond -C N. It runs until -C, -W or a signal ends it (0), the
    broker refuses or goes away (1).

    A queue is consumed with ?group=G&settle=puback behind its name; to look at one use
    `headrace queues peek`, for a filter without them takes messages and settles none.

    \b
    FORMAT may hold, each with a width as in %-20t or %06l:
      %t topic   %p payload   %x %X payload in hex   %l its length
      %q QoS     %r retain    %m packet id           %% a percent sign
      %I time    %U seconds since 1970   @Y @m @d @H @M @S @N parts of the time
      %j JSON    %J JSON, the payload read as JSON   \\n \\t \\0 and the like
      %C content type   %R response topic   %D correlation data   %E expiry
      %F payload format   %S subscription id   %P user properties

    \b
    Examples:
      headrace sub -t 'building/+/temperature' -v
      headrace sub -t '#' -q 1 -F '%I %t %p' -W 60
      headrace sub -t 'jobs/#' -q 1 -c -i worker-1 -C 100 --json
      headrace sub -t 'state/#' --retained-only -v
      headrace sub --ws -t '$share/workers/jobs/#' -q 1
      headrace sub -t '$queue/jobs?group=g&settle=puback' -q 1 -C 1
      headrace sub -t '$stream/readings/#' --from 2026-11-28T10:00:00Z

    \b
    Of mosquitto_sub's options these are not here:
      --psk, --psk-identity, --tls-engine, --keyform   Python's TLS has no such keys
      --proxy      needs a package of its own; proxychains does the same
      --nodelay    is always so
      -S           SRV records are not looked up; name the host with -h
      --quiet      2>/dev/null
    """
    topics = [*given["topics"], *filter(None, [given["url"].topic if given["url"] else None])]
    if not topics and not given["unsubscribed"]:
        raise click.UsageError("a topic is missing; give -t, or -L with one")
    for option, filters in (
        ("-t", topics),
        ("-U", given["unsubscribed"]),
        ("-T", given["left_out"]),
    ):
        for each in filters:
            _check(option, each)
    is_nameless = given["client_id"] is None and given["id_prefix"] is None
    queues = [topic for topic in topics if topic.startswith(QUEUE)]
    if is_nameless and queues:
        given["client_id"] = ""  # the broker names it, and its group goes with it
    given["is_passing"] = is_nameless and not all(
        "group=" in topic.partition("?")[2] for topic in queues
    )
    there = target("headrace-sub", given)
    if given["starts"] and there.version != V5:
        raise click.UsageError("--from needs MQTT 5; 3.1.1 has no way to say where to begin")
    if given["starts"] and not any(topic.startswith(STREAM) for topic in topics):
        raise click.UsageError("--from is about streams; give -t '$stream/NAME/#'")
    run = _Run(given, _layout(given))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    try:
        with Connection(there) as connection:
            run.listen(connection, topics)
    except _EndError:
        pass
    if run.is_short:
        raise MqttError(
            f"{run.printed} of {given['count']} messages came within {given['seconds']:g} s"
        )


class _Run:
    """Prints messages until enough have come."""

    def __init__(self, given: dict[str, Any], write: Write) -> None:
        self._given = given
        self._write = write
        self._written: list[MQTTMessage] = []
        self._is_over = False
        self._said = [(_property(each), each) for each in given["starts"]]
        self._places: dict[tuple[str, str], int] = {}
        """Of each stream and partition, the last offset that came."""
        self._removals: dict[int, str] = {}
        """Topics of clears that the broker has not acknowledged, by packet id."""
        self._refused: str | None = None
        """What it said to one."""
        self.printed = 0

    @property
    def is_short(self) -> bool:
        """Whether the time was over before all messages had come that were asked for."""
        given = self._given
        has_time = given["seconds"] is not None and given["count"] is not None
        return has_time and self.printed < given["count"] and not self._is_over

    def listen(self, connection: Connection, topics: list[str]) -> None:
        """Subscribes, and prints what comes.

        Raises:
            MqttError: the broker refuses a filter, or is gone.
        """
        given = self._given
        deadline = None if given["seconds"] is None else time.monotonic() + given["seconds"]
        connection.on_message = lambda message: self._take(connection, message)
        connection.on_acknowledged = self._removed
        self._subscribe(connection, topics)
        while True:
            self._settle(connection)
            if self._refused is not None:
                raise MqttError(self._refused)
            left = WAIT_S if deadline is None else min(WAIT_S, deadline - time.monotonic())
            if (self._is_over and not self._removals) or left <= 0.0:
                return
            try:
                connection.step(left)
            except MqttError as error:
                self._written.clear()  # it comes again, or was acknowledged
                if given["is_passing"]:  # a new group would be given anew what this one settled
                    line = str(error).partition("\n")[0]
                    raise MqttError(f"{line}\n{GROUP_GONE}") from None
                self._connect_again(connection, topics, error, deadline)

    def _connect_again(
        self, connection: Connection, topics: list[str], error: MqttError, deadline: float | None
    ) -> None:
        """Connects and subscribes until that succeeds, or the time is over.

        Raises:
            MqttError: the broker refuses for good.
        """
        delay_s = 1.0
        while error.retriable:
            line = str(error).partition("\n")[0]
            click.echo(f"headrace: {line}; trying again in {delay_s:g} s", err=True)
            left = math.inf if deadline is None else deadline - time.monotonic()
            time.sleep(max(min(delay_s, left), 0.0))
            if left <= delay_s:
                return
            delay_s = min(delay_s * 2.0, AGAIN_S_MAX)
            try:
                connection.connect()
                self._subscribe(connection, topics)
            except MqttError as another:
                error = another
            else:
                return
        raise error

    def _subscribe(self, connection: Connection, topics: list[str]) -> None:
        given, options = self._given, self._options(connection)
        streams = [each for each in topics if self._said and each.startswith(STREAM)]
        others = [each for each in topics if each not in streams]
        # Each stream has offsets of its own.
        for together in [*([each] for each in streams), *([others] if others else [])]:
            said = self._where(together[0]) if together is not others else []
            codes = connection.subscribe(together, options, said)
            for topic, code in zip(together, codes, strict=True):
                if code.value >= 0x80:
                    why = named(code, connection.told)
                    raise MqttError(f"the broker refuses a subscription to {topic}: {why}")
        if given["unsubscribed"]:
            connection.unsubscribe(given["unsubscribed"])
        self._is_over = self._is_over or given["only_subscribes"]

    def _where(self, topic: str) -> list[tuple[str, str]]:
        """Where a stream begins: as was asked, or behind what has come of it."""
        name = topic.removeprefix(STREAM).partition("/")[0]
        places = {
            partition: f"{partition}:{last + 1}"
            for (stream, partition), last in self._places.items()
            if stream == name
        }
        asked = [
            (key, value)
            for key, value in self._said
            if not places or (value.partition(":")[0] not in places and not value.isdigit())
        ]
        return asked + [(OFFSET, place) for place in places.values()]

    def _note(self, message: MQTTMessage) -> None:
        """Notes where a record of a stream stands."""
        if self._said and message.topic.startswith(STREAM):
            said = dict(getattr(message.properties, "UserProperty", []))
            partition, _, offset = said.get(OFFSET, "").partition(":")
            if offset:
                name = message.topic.removeprefix(STREAM).partition("/")[0]
                self._places[name, partition] = int(offset)

    def _options(self, connection: Connection) -> SubscribeOptions:
        given = self._given
        if connection.target.version != V5:
            return SubscribeOptions(given["qos"])
        return SubscribeOptions(
            given["qos"],
            given["no_local"],
            given["retain_as_published"],
            RETAIN_HANDLING[given["retain_handling"]],
        )

    def _take(self, connection: Connection, message: MQTTMessage) -> None:
        """What comes after the end is not acknowledged: it is for the next connection."""
        given = self._given
        if self._is_over:
            return
        if given["retained_only"] and not message.retain:
            self._is_over = True
            return
        self._written.append(message)
        self._note(message)
        if any(topic_matches_sub(each, message.topic) for each in given["left_out"]):
            return
        if given["remove_retained"] and message.retain:
            packet_id = connection.publish(message.topic, b"", 1, retain=True)
            self._removals[packet_id] = message.topic
        if given["no_retained"] and message.retain:
            return
        if random.random() * 100.0 >= given["random_filter"]:  # noqa: S311 - a sample
            return
        sys.stdout.buffer.write(self._write(message, time.time()))
        self.printed += 1
        self._is_over = self.printed == given["count"]

    def _removed(self, packet_id: int, code: ReasonCode, told: str) -> None:
        topic = self._removals.pop(packet_id, None)
        if topic is not None and code.value >= 0x80:
            self._refused = f"the broker refuses to clear {topic}: {named(code, told)}"

    def _settle(self, connection: Connection) -> None:
        """Acknowledges what has left this process."""
        if self._written:
            sys.stdout.buffer.flush()
            for message in self._written:
                connection.acknowledge(message)
            self._written.clear()


def _property(start: str) -> str:
    """The property that says what `--from` does; the broker knows what may be."""
    is_offset = start in {"earliest", "latest"} or set(start) <= set("0123456789:")
    return OFFSET if is_offset else TIME


def _check(option: str, topic: str) -> None:
    try:
        check_filter(topic)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None


def _layout(given: dict[str, Any]) -> Write:
    if given["as_json"] + (given["layout"] is not None) + given["verbose"] > 1:
        raise click.UsageError("--json, -F and -v each say how to print; give one of them")
    end = b"" if given["no_end"] else b"\n"
    indent = JSON_INDENT if given["pretty"] else None
    if given["as_json"]:
        return as_json_lines(end=end, indent=indent)
    shown = visible_bytes if sys.stdout.isatty() else bytes
    if given["layout"] is None:
        return plain(with_topic=given["verbose"], end=end, shown=shown)
    try:
        return formatted(given["layout"], end=end, shown=shown, indent=indent)
    except ValueError as error:
        raise click.UsageError(f"-F {given['layout']!r} {error}") from None


def _end(*_: object) -> None:
    raise _EndError
