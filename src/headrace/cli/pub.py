"""`headrace pub`: messages to an MQTT broker."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from headrace import limits
from headrace.cli.client import json_option
from headrace.cli.mqtt_options import MqttCommand, Seconds, broker_options, qos_option, target
from headrace.client.mqtt import Connection, named
from headrace.errors import MqttError
from headrace.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from paho.mqtt.reasoncodes import ReasonCode

WAIT_S: Final = 1.0
"""Between two looks at the clock; whatever comes is dealt with at once."""

CHUNK_BYTES: Final = 65_536


@click.command(cls=MqttCommand, short_help="Publish messages to an MQTT broker.")
@click.option("-t", "--topic", help="Where to.")
@click.option("-m", "--message", help="This text.")
@click.option(
    "-f",
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The content of this file.",
)
@click.option("-l", "--stdin-line", "lines", is_flag=True, help="Each line of standard input.")
@click.option("-s", "--stdin-file", "whole", is_flag=True, help="All of standard input, as one.")
@click.option("-n", "--null-message", "empty", is_flag=True, help="An empty message.")
@qos_option
@click.option("-r", "--retain", is_flag=True, help="Retain it.")
@click.option("--repeat", type=click.IntRange(1), default=1, help="Publish it so often.")
@click.option(
    "--repeat-delay",
    type=Seconds(0),
    default=0.0,
    metavar="SECONDS",
    help="Between two of them.",
)
@click.option(
    "-M",
    "--max-inflight",
    type=click.IntRange(1, 65_535),
    default=20,
    show_default=True,
    help="Messages at a time that are not acknowledged.",
)
@click.option("--quiet", is_flag=True, help="No summary of -l and --repeat at a terminal.")
@broker_options
@json_option
def pub(*, as_json: bool, quiet: bool, **given: Any) -> None:  # noqa: ANN401 - click's
    """Publish to an MQTT broker, with the options of mosquitto_pub.

    One of -m, -f, -l, -s, -n says what. At QoS 1 and 2 it ends when the broker has acknowledged
    everything: from a headrace node that means on disk, where a stream stores it. A message that
    the broker refuses, or a connection that breaks before, ends it with exit code 1.

    \b
    Examples:
      headrace pub -t building/7/temperature -m 21.5 -q 1
      tail -f readings.log | headrace pub -t lines -l -q 1
      headrace pub -t state/door -m open -r -D publish message-expiry-interval 3600
      headrace pub -L mqtts://user:secret@broker.example.org/rooms/7 -m 21.5
      headrace pub -h 10.0.0.7 -t bench -m x -q 1 --repeat 10000 --json

    \b
    Of mosquitto_pub's options these are not here:
      --psk, --psk-identity, --tls-engine, --keyform   Python's TLS has no such keys
      --proxy      needs a package of its own; proxychains does the same
      --nodelay    is always so
      -S           SRV records are not looked up; name the host with -h
    """
    topic = given["topic"] or (given["url"].topic if given["url"] else None)
    if topic is None:
        raise click.UsageError("a topic is missing; give -t, or -L with one")
    if "+" in topic or "#" in topic:
        raise click.UsageError(f"+ and # are for subscriptions, no topic has them; got {topic!r}")
    asked = [
        name for name in ("message", "file", "lines", "whole", "empty") if _is_given(given[name])
    ]
    if len(asked) != 1:
        raise click.UsageError("give one of -m, -f, -l, -s and -n: what to publish")
    there = target("headrace-pub", given, given["max_inflight"])
    payloads = _lines() if given["lines"] else iter([_payload(given)] * given["repeat"])
    run = _Run(topic, given["qos"], retain=given["retain"], delay_s=given["repeat_delay"])
    with Connection(there) as connection:
        run.publish(connection, payloads)
    many = given["lines"] or given["repeat"] > 1
    if as_json:
        click.echo(json.dumps(run.summary()))
    elif many and not quiet and sys.stderr.isatty():
        click.echo(_line(run.summary()), err=True)


class _Run:
    """Publishes, and measures how long acknowledgements take."""

    def __init__(self, topic: str, qos: int, *, retain: bool, delay_s: float) -> None:
        self._topic, self._qos, self._retain, self._delay_s = topic, qos, retain, delay_s
        self._published = self._acknowledged = 0
        self._refused: str | None = None
        self._sent_at: dict[int, float] = {}
        self._latencies_s: list[float] = []
        self._begun = self._ended = time.monotonic()

    def publish(self, connection: Connection, payloads: Iterator[bytes | None]) -> None:
        """Publishes all, and waits until the broker has answered each.

        A payload of None is none: the next one can be had once standard input can be read.

        Raises:
            MqttError: it refused one, or hung up before.
        """
        connection.on_acknowledged = self._answered
        self._begun = time.monotonic()
        try:
            for payload in payloads:
                if payload is None:
                    while not self._step(connection, sys.stdin.fileno()):
                        pass
                else:
                    self._one(connection, payload)
            while self._sent_at or not connection.is_flushed:
                self._step(connection)
        except MqttError as error:
            if self._qos == 0 or not self._published:
                raise
            told = f"{self._acknowledged:,} of {self._published:,} messages were acknowledged"
            raise MqttError(f"{error}\n{told}") from None
        self._ended = time.monotonic()

    def _one(self, connection: Connection, payload: bytes) -> None:
        if self._delay_s and self._published:
            due = time.monotonic() + self._delay_s
            while (left := due - time.monotonic()) > 0.0:
                self._step(connection, timeout_s=left)
        packet_id = connection.publish(self._topic, payload, self._qos, retain=self._retain)
        self._published += 1
        if self._qos:
            self._sent_at[packet_id] = time.monotonic()
        while len(self._sent_at) >= connection.target.in_flight_max or not connection.is_flushed:
            self._step(connection)

    def _step(self, connection: Connection, *more: int, timeout_s: float = WAIT_S) -> bool:
        """As `Connection.step`.

        Raises:
            MqttError: the broker has refused a message, too.
        """
        has_more = connection.step(timeout_s, *more)
        if self._refused is not None:
            raise MqttError(self._refused)
        return has_more

    def _answered(self, packet_id: int, code: ReasonCode, told: str) -> None:
        sent_at = self._sent_at.pop(packet_id, None)
        if sent_at is None:  # at QoS 0, when it was written
            return
        if code.value >= 0x80:
            self._refused = f"the broker refuses a message for {self._topic}: {named(code, told)}"
            return
        self._acknowledged += 1
        self._latencies_s.append(time.monotonic() - sent_at)

    def summary(self) -> dict[str, Any]:
        """Counts, seconds and milliseconds."""
        seconds = self._ended - self._begun
        latencies = sorted(self._latencies_s)

        def at(share: float) -> float:
            return round(latencies[int(share * (len(latencies) - 1))] * 1000, 3)

        found = {"p50": at(0.5), "p99": at(0.99), "max": at(1.0)} if latencies else None
        return {
            "published": self._published,
            "acknowledged": self._acknowledged,
            "seconds": round(seconds, 6),
            "latency_ms": found,
        }


def _is_given(value: object) -> bool:
    return value is not None and value is not False


def _payload(given: dict[str, Any]) -> bytes:
    if given["file"] is not None:
        with Path(given["file"]).open("rb") as file:
            return _whole(file, given["file"])
    if given["whole"]:
        return _whole(sys.stdin.buffer, "standard input")
    return os.fsencode(given["message"] or "")  # as it was given, whatever the encoding


def _whole(file: BinaryIO, name: object) -> bytes:
    """All of a file, which may be a device without an end."""
    payload = file.read(limits.PACKET_BYTES_CEILING + 1)
    return _fits(payload, name)


def _fits(payload: bytes, name: object) -> bytes:
    if len(payload) > limits.PACKET_BYTES_CEILING:
        raise click.UsageError(f"{name} is longer than any message of MQTT, 256 MiB")
    return payload


def _lines() -> Iterator[bytes | None]:
    """Lines of standard input without their ends, and None before each read."""
    rest = b""
    while True:
        yield None
        chunk = os.read(sys.stdin.fileno(), CHUNK_BYTES)
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        _fits(rest, "a line")
    if rest:
        yield rest


def _line(summary: dict[str, Any]) -> str:
    rate = summary["published"] / max(summary["seconds"], 1e-9)
    text = (
        f"{counted(summary['published'], 'message')} in {summary['seconds']:.2f} s, {rate:,.0f}/s"
    )
    latency = summary["latency_ms"]
    if latency is None:
        return text
    return f"{text}; acknowledged in {latency['p50']} ms (p50), {latency['p99']} ms (p99)"
