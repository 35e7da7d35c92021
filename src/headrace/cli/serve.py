"""`headrace serve`: reads settings, wires the machine into a node, says when it is ready."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING

import click
import uvloop

from headrace import __version__, limits
from headrace.adapters import data_folder, process
from headrace.adapters.clock import SystemClock
from headrace.adapters.files import FileDefinitions, private
from headrace.adapters.http import HttpDoor
from headrace.adapters.machine import (
    keep_freed_memory,
    log_to_stderr,
    notify_manager,
    raise_descriptor_limit,
)
from headrace.adapters.process import LoopLag
from headrace.adapters.sockets import backlog_max
from headrace.cli.access import make_gate
from headrace.cli.config import checked
from headrace.cli.listeners import Listeners, named
from headrace.cli.paths import NamedPath
from headrace.cli.processes import announce, stop_on_signals
from headrace.cli.reload import (
    Reload,
    limits_of_switchboard,
    live_settings,
    settings_of_frame,
    settings_of_kafka,
)
from headrace.config import read
from headrace.config.testing import BATCH_DELAY, batch_delay_ms
from headrace.errors import InputError, StartError
from headrace.kernel.budget import DescriptorBudget
from headrace.kernel.catalog import Change
from headrace.native import Store, Switchboard
from headrace.node.frame import FrameDoor
from headrace.node.kafka import KafkaDoor
from headrace.node.lifetime import Node, Parts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from headrace.config import Config
    from headrace.model import Address
    from headrace.node.access import Gate
    from headrace.node.broker import Broker
    from headrace.ports import Clock, MeteredDoor

log = logging.getLogger(__name__)

TELEMETRY_STREAM = {
    "gpu-telemetry": Change(partitions=12, filters=("dcgm/#",), key="level:3"),
}
"""What a node without streams begins with: the stream that the GPU collector publishes into."""


@click.command(short_help="Run a node.")
@click.option("--config", "file", type=NamedPath(), metavar="FILE", help="Settings, as TOML.")
@click.option("--data", metavar="DIR", help="Folder of everything durable.  [headrace-data]")
@click.option("--mqtt", metavar="HOST:PORT", help="MQTT door.  [127.0.0.1:1883]")
@click.option("--ws", metavar="HOST:PORT", help="MQTT over WebSocket, or off.  [127.0.0.1:8083]")
@click.option("--kafka", metavar="HOST:PORT", help="Kafka door.  [127.0.0.1:9092]")
@click.option("--frame", metavar="HOST:PORT", help="Frame door, or off.  [127.0.0.1:9192]")
@click.option("--http", metavar="HOST:PORT", help="HTTP door.  [127.0.0.1:8080]")
@click.option("--json", "as_json", is_flag=True, help="Print the ready line as one JSON object.")
def serve(
    *,
    file: Path | None,
    data: str | None,
    mqtt: str | None,
    ws: str | None,
    kafka: str | None,
    frame: str | None,
    http: str | None,
    as_json: bool,
) -> None:
    """Run a node until SIGTERM or Ctrl-C.

    One line on stdout says that all doors are open; the log goes to stderr. A stop lets what was
    accepted reach the disk, tells clients, and closes; a second signal ends the node at once, and
    nothing acknowledged is lost by that either.

    Settings come from defaults, then FILE, then variables HEADRACE_TABLE__KEY, then these options.
    A node without streams begins with `gpu-telemetry` (filter dcgm/#, 12 partitions, key level:3),
    unless node.default_stream is false.

    \b
    Examples:
      headrace serve
      headrace serve --data /var/lib/headrace --mqtt 127.0.0.1:2883
      HEADRACE_LOGGING__FORMAT=json headrace serve --config headrace.toml
      headrace serve --mqtt 127.0.0.1:0 --kafka 127.0.0.1:0 --http 127.0.0.1:0 --json

    \b
    headrace.toml:
      [mqtt]
      bind = "127.0.0.1:1883"
      [log]
      segment_bytes = "256MiB"
      [streams.readings]
      partitions = 4
      filters = ["sensors/#"]
      "max.message.bytes" = "2MiB"
    """
    options: dict[str, dict[str, object]] = {
        "node": {"data": data},
        "mqtt": {"bind": mqtt, "ws_bind": ws},
        "kafka": {"bind": kafka},
        "frame": {"bind": frame},
        "http": {"bind": http},
    }
    sources = read(file, os.environ, options)
    checked(sources)
    config = sources.config
    log_to_stderr(config.logging.level, config.logging.format, config.node.name)
    keep_freed_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, file, options, sources.doubts, as_json=as_json))


async def _serve(
    config: Config,
    file: Path | None,
    options: Mapping[str, Mapping[str, object]],
    doubts: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    key = (secrets.randbits(64), secrets.randbits(64))
    switchboard = Switchboard(key, **limits_of_switchboard(config))
    for doubt in doubts:
        log.warning(doubt)
    clock = SystemClock()
    gate = make_gate(config, clock, switchboard)
    # Ports come before the folder: who cannot have them leaves nothing behind.
    listeners = Listeners(config, lambda: gate.is_open)
    listeners.bind()
    if backlog_max() < limits.LISTEN_BACKLOG:
        log.warning(
            "net.core.somaxconn, %d, cuts the accept queue of %d short: raise it, or storms of "
            "connects will meet retries of a second", backlog_max(), limits.LISTEN_BACKLOG,
        )  # fmt: skip
    lag = LoopLag()
    parts = _parts(config, file, listeners, lag, clock, gate)
    reload = Reload(file, options, config, parts, listeners)
    node = reload.node = Node(config.node.name, parts)
    stopping = stop_on_signals()
    door = reload.door = HttpDoor(
        node,
        config.http.body_bytes,
        config.http.request_timeout,
        config.http.idle_timeout,
        config.limits.handshake_timeout,
        reload,
    )
    door.telemetry.configure(config.pipeline.api, config.pipeline.stream)
    with named("http"):
        http = await door.open(config.http.bind, listeners.certificates.get("http"))
    reloading = reload.on_signal()
    try:
        await node.open()
        # What start-up made lives as long as the process; no collection need walk it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(limits.YOUNG_OBJECTS_MAX, *gc.get_threshold()[1:])
        if not stopping.is_set():
            announce(_ready_line(node, config, http, as_json=as_json))
            notify_manager("READY=1")
        await stopping.wait()
        log.info("stopping")
        notify_manager("STOPPING=1")
    finally:
        reloading.cancel()
        lag.stop()
        await node.close()
        await door.close()
        listeners.close()
    log.info("stopped")


def _parts(
    config: Config, file: Path | None, listeners: Listeners, lag: LoopLag, clock: Clock, gate: Gate
) -> Parts:
    return Parts(
        clock=clock,
        definitions=FileDefinitions(config.node.data),
        switchboard=gate.switchboard,
        gate=gate,
        open_store=lambda: _open_store(config, file),
        listen=listeners.open,
        listeners=listeners.of,
        meters=[listeners.samples, process.samples],
        distributions=[lag.histograms],
        budget=DescriptorBudget(
            raise_descriptor_limit(), config.limits.connections, config.limits.partitions
        ),
        extra=_doors(config, gate),
        producer_expiry_ms=config.log.producer_expiry,
        packet_bytes_max=config.mqtt.packet_bytes,
        keeps_sessions=config.mqtt.persistence,
        version=f"headrace version {__version__}",
        before_batch=_before_batch(),
        first=TELEMETRY_STREAM if config.node.default_stream else {},
        **live_settings(config),
    )


def _before_batch() -> Callable[[], None] | None:
    delay_ms = batch_delay_ms(os.environ)
    if not delay_ms:
        return None
    log.warning("%s: this node stands still for %d ms before each batch", BATCH_DELAY, delay_ms)
    return partial(time.sleep, delay_ms / 1e3)


def _doors(config: Config, gate: Gate) -> dict[str, Callable[[Broker], Awaitable[MeteredDoor]]]:
    """What makes the doors beside MQTT and HTTP, by name."""

    async def kafka(broker: Broker) -> KafkaDoor:
        return await KafkaDoor.open(broker, settings_of_kafka(config), gate)

    async def frame(broker: Broker) -> FrameDoor:
        return FrameDoor(broker, settings_of_frame(config), gate)

    doors: dict[str, Callable[[Broker], Awaitable[MeteredDoor]]] = {"kafka": kafka}
    return doors if config.frame.bind is None else {**doors, "frame": frame}


def _open_store(config: Config, file: Path | None) -> Store:
    data = config.node.data
    private()
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        no_folder = isinstance(error, (FileExistsError, NotADirectoryError, PermissionError))
        raise (InputError if no_folder else StartError)(
            f"cannot make the data folder {data}: {error.strerror}; name another with --data"
        ) from None
    data_folder.check(data, [*config.paths(), *([] if file is None else [file])])
    store = Store.open(
        str(data),
        journal_bytes=config.log.journal_bytes,
        index_interval_bytes=config.log.index_interval_bytes,
        direct_write_bytes=config.log.direct_write_bytes,
        reserve_bytes=config.log.reserve_bytes,
    )
    recovery = store.recovery
    if not recovery.clean:
        log.warning(
            "the last stop was not orderly: %d logs checked, %d batches restored from the "
            "journal, %d torn bytes cut",
            recovery.logs, recovery.replayed_batches, recovery.truncated_bytes,
        )  # fmt: skip
    if recovery.rebuilt_indexes:
        log.warning(
            "indexes of %d segments were damaged or lost and were built anew: check the disk, and "
            "the rest of the folder with headrace log verify", recovery.rebuilt_indexes,
        )  # fmt: skip
    return store


def _ready_line(node: Node, config: Config, http: Address, *, as_json: bool) -> str:
    doors = {name: listener.address for name, listener in node.listeners.items()} | {"http": http}
    streams = len(node.streams())
    if as_json:
        value = {
            "ready": True,
            "node": node.name,
            "pid": os.getpid(),
            "data": str(config.node.data),
            "streams": streams,
            **{name: str(address) for name, address in doors.items()},
        }
        return json.dumps(value)
    opened = ", ".join(f"{name} {address}" for name, address in doors.items())
    plural = "" if streams == 1 else "s"
    return f"headrace ready: {opened}, data {config.node.data} ({streams} stream{plural})"
