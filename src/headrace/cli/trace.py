"""`headrace trace`: what one client, or one topic, does on a running node, live."""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click

from headrace import limits
from headrace.cli.client import stream, url_option
from headrace.cli.terminal import one_line
from headrace.text import counted, parse_duration_ms

if TYPE_CHECKING:
    from types import FrameType


def _seconds(_context: object, _option: object, text: str) -> float:
    try:
        seconds = parse_duration_ms(text) / 1000
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if not 0 < seconds <= limits.TRACE_SECONDS_MAX:
        raise click.BadParameter(f"must be up to {limits.TRACE_SECONDS_MAX // 3600}h; got {text!r}")
    return seconds


@click.command(short_help="Watch one client or one topic live.")
@click.option("--client", help="Client id: all its packets, drops, and the end.")
@click.option("--topic", metavar="FILTER", help="Publishes to these topics, of and to everyone.")
@click.option(
    "--for",
    "seconds",
    default="60s",
    show_default=True,
    callback=_seconds,
    metavar="DURATION",
    help="End after this time.",
)
@click.option(
    "--payload",
    type=click.IntRange(0, limits.TRACE_PAYLOAD_BYTES_MAX),
    default=0,
    show_default=True,
    metavar="BYTES",
    help="Show the beginning of payloads.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each line.")
@url_option
def trace(
    *,
    client: str | None,
    topic: str | None,
    seconds: float,
    payload: int,
    as_json: bool,
    url: str,
) -> None:
    """Print what a client, or whoever uses a topic, sends and is sent, as it happens.

    Each line has the time, what it is (in, out; drop, with the reason; rest, why the client is
    not read on; close), the client, the packet with its id and reason code, topic, bytes. A node
    keeps 4 MiB of lines for a reader that is slow, and tells how many it has lost. A signal ends
    the trace. While nobody traces, it costs the node nothing.

    \b
    Examples:
      headrace trace --client pump-17
      headrace trace --topic 'building/7/#' --for 5m --payload 60
      headrace trace --client pump-17 --json | jq 'select(.event == "drop")'
    """
    if (client is None) == (topic is None):
        raise click.UsageError("give one of --client and --topic: what to trace")
    asked: dict[str, Any] = {"seconds": seconds, "payload": payload}
    asked |= {"topic": topic} if client is None else {"client": client}
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    for line in stream(url, f"/api/v1/trace?{urlencode(asked)}"):
        click.echo(line if as_json else one_line(_told(json.loads(line))))
        sys.stdout.flush()


def _end(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _told(line: dict[str, Any]) -> str:
    if line["event"] == "lost":
        return f"(lost {counted(line['lines'], 'line')}: read faster, or trace less)"
    parts = [line["time"][11:23], f"{line['event']:5}", line.get("client", "-")]
    parts += [line[name] for name in ("packet", "topic") if name in line]
    parts += [f"id {line['id']}"] if "id" in line else []
    if "qos" in line:
        parts.append(f"QoS {line['qos']}")
        parts += [name for name in ("retain", "dup") if name in line]
    parts += [f"0x{line['reason_code']:02x}"] if "reason_code" in line else []
    parts += [f"{line['bytes']} B"] if "bytes" in line else []
    parts += [line["text"]] if "text" in line else []
    if "payload" in line:
        parts.append(json.dumps(line["payload"], ensure_ascii=False))
    elif "payload_base64" in line:
        parts.append(f"base64 {line['payload_base64']}")
    return "  ".join(str(part) for part in parts)
