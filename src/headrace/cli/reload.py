"""A node's settings read again while it serves, on SIGHUP or when asked over HTTP.

Performs what `config.changes` decides. Invariant: a configuration that is wrong changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.adapters.machine import log_to_stderr, notify_manager
from headrace.cli.access import reload_gate
from headrace.cli.config import checked, declared
from headrace.config import read
from headrace.config.changes import Change, Changes, changes
from headrace.config.reference import literal, settings, written
from headrace.config.streams import TABLES
from headrace.errors import ConfigError, HeadraceError, UnavailableError
from headrace.kernel.groups.events import GroupSettings
from headrace.kernel.quotas import Quota
from headrace.node.frame import FrameDoor, FrameSettings
from headrace.node.kafka import KafkaDoor, KafkaSettings
from headrace.ports import NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from headrace.adapters.http import HttpDoor
    from headrace.cli.listeners import Listeners
    from headrace.config import Config
    from headrace.config.quotas import KafkaQuota
    from headrace.node.lifetime import Node, Parts

log = logging.getLogger(__name__)


def limits_of_switchboard(config: Config) -> dict[str, Any]:
    """Its limits, by their names there."""
    return {
        "packet_bytes_max": config.mqtt.packet_bytes,
        "receive_max": config.mqtt.receive_maximum,
        "topic_alias_max": config.mqtt.topic_alias_maximum,
        "session_expiry_s_max": config.mqtt.session_expiry_max // 1000,
        "in_flight_max": config.limits.session_in_flight,
        "queued_messages_max": config.limits.session_messages,
        "queued_bytes_max": config.limits.session_bytes,
        "queued_bytes_of_node_max": config.limits.queued_bytes,
        "copies_each": config.mqtt.overlapping_subscriptions == "each",
        "overflow": config.mqtt.overflow,
        "sessions_max": config.limits.sessions,
        "sessions_kept_max": config.limits.sessions_kept,
        "queue_groups_max": config.limits.queue_groups,
        "subscriptions_max": config.limits.session_subscriptions,
        "subscriptions_of_node_max": config.limits.subscriptions,
        "unreleased_of_node_max": config.limits.unreleased,
        "messages_per_s_max": config.limits.messages_per_second,
        "shared_strategy": config.mqtt.shared_strategy,
        "shared_strategies": config.mqtt.strategies(),
        "group_messages_max": config.limits.group_messages,
        "group_bytes_max": config.limits.group_bytes,
        "retained_messages_max": config.limits.retained_messages,
        "retained_bytes_max": config.limits.retained_bytes,
        "outbound_bytes_max": config.limits.outbound_bytes,
        "buffered_bytes_max": config.limits.buffered_bytes,
        "stall_ms_max": config.limits.stall,
        "undurable_bytes_max": config.limits.undurable_bytes,
        "response_information": config.mqtt.response_information,
        "keep_alive_s_max": config.mqtt.keep_alive_max // 1000,
        "connect_timeout_ms": config.mqtt.connect_timeout,
    }


def settings_of_kafka(config: Config) -> KafkaSettings:
    """What the Kafka door knows of settings."""
    kafka = config.kafka
    is_apart = kafka.tls_bind is not None
    return KafkaSettings(
        advertised=kafka.advertised,
        tls_advertised=kafka.tls_advertised if is_apart else kafka.advertised,
        auto_create_streams=kafka.auto_create_streams,
        num_partitions=kafka.num_partitions,
        idle_ms=kafka.idle_timeout,
        undurable_bytes=config.limits.undurable_bytes,
        groups=GroupSettings(
            initial_delay_ms=kafka.group_initial_rebalance_delay,
            session_ms_min=kafka.group_min_session_timeout,
            session_ms_max=kafka.group_max_session_timeout,
            size_max=kafka.group_max_size,
            retention_ms=kafka.offsets_retention,
        ),
        quotas=tuple(_quota(each) for each in kafka.quotas),
        cluster_id=config.node.name,
        log_dir=str(config.node.data.absolute()),
    )


def settings_of_frame(config: Config) -> FrameSettings:
    """What the frame door knows of settings."""
    return FrameSettings(
        connect_ms=config.frame.connect_timeout,
        idle_ms=config.frame.idle_timeout,
        heartbeat_ms=config.frame.heartbeat_interval,
        undurable_bytes=config.limits.undurable_bytes,
    )


def _quota(table: KafkaQuota) -> Quota:
    return Quota(
        users=table.users,
        clients=table.clients,
        produced=table.producer_byte_rate,
        fetched=table.consumer_byte_rate,
        requests=table.request_rate,
    )


class PartlyReloadedError(ConfigError):
    """Streams that the configuration declares could not be changed; all else was."""


class Reload:
    """What a running node needs to take other settings.

    Args:
        file, options: as the node was started with.
        config: what it was started with.
        parts: what it is made of.
    """

    def __init__(
        self,
        file: Path | None,
        options: Mapping[str, Mapping[str, object]],
        config: Config,
        parts: Parts,
        listeners: Listeners,
    ) -> None:
        self._file = file
        self._options = options
        self._config = config
        self._parts = parts
        self._listeners = listeners
        self._reloading = asyncio.Lock()
        self.node: Node | None = None
        self.door: HttpDoor | None = None

    def on_signal(self) -> asyncio.Task[None]:
        """A task that reloads at each SIGHUP."""
        asked = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, asked.set)

        async def wait() -> None:
            while await asked.wait():
                asked.clear()
                try:
                    await self()
                except PartlyReloadedError as error:
                    log.error("%s", error)  # noqa: TRY400 - no fault of the node
                except HeadraceError as error:
                    log.error("not reloaded, the settings of before hold: %s", error)  # noqa: TRY400

        return asyncio.create_task(wait())

    async def __call__(self) -> dict[str, list[str]]:
        """Reads the settings and the certificates again; what changed, by when it holds.

        Raises:
            PartlyReloadedError: declared streams cannot be what they say; all else has changed.
            ConfigError: they are wrong, and nothing has changed.
            UnavailableError: the node is not ready.
        """
        async with self._reloading:
            if self.node is None or self.node.state is not NodeState.READY:
                self._read_certificates()
                raise UnavailableError("only certificates were read again: the node is not ready")
            notify_manager("RELOADING=1")
            try:
                return await self._reload(self.node)
            finally:
                notify_manager("READY=1")

    async def _reload(self, node: Node) -> dict[str, list[str]]:
        sources = read(self._file, os.environ, self._options)
        checked(sources)
        for doubt in sources.doubts:
            log.warning(doubt)
        self._read_certificates()
        try:
            return await self._change(node, changes(self._config, sources.config))
        finally:  # what has changed was told at the level of before
            logging_ = self._config.logging
            log_to_stderr(logging_.level, logging_.format, self._config.node.name)

    async def _change(self, node: Node, found: Changes) -> dict[str, list[str]]:
        before, self._config = self._config, found.config
        reload_gate(self._parts.gate, found.config)
        try:
            await self._apply(node, found.config)
        except (ConfigError, UnavailableError) as error:
            # The next reload tries them again.
            streams = {table: getattr(before, table) for table in TABLES}
            self._config = found.config.model_copy(update=streams)
            _tell([each for each in found.live if each.table not in TABLES], found.restart)
            raise PartlyReloadedError(
                f"reloaded but for streams that stay as they are: {error}"
            ) from error
        _tell(found.live, found.restart)
        if not (found.live or found.restart):
            log.info("reloaded: no setting has changed")
        return {
            "changed": [each.name for each in found.live],
            "restart": [each.name for each in found.restart],
        }

    def _read_certificates(self) -> None:
        for each in self._listeners.certificates.values():
            each.reload()

    async def _apply(self, node: Node, config: Config) -> None:
        self._listeners.reconfigure(config)
        if self.door is not None:
            self.door.set_timeouts(config.http.request_timeout, config.http.idle_timeout)
            self.door.telemetry.configure(config.pipeline.api, config.pipeline.stream)
        for door in node.doors:
            if isinstance(door, KafkaDoor):
                door.configure(settings_of_kafka(config))
            elif isinstance(door, FrameDoor):
                door.configure(settings_of_frame(config))
        self._parts = live_parts(self._parts, config)
        await node.reconfigure(self._parts, limits_of_switchboard(config))


def _tell(live: Iterable[Change], restart: Iterable[Change]) -> None:
    for change in live:
        log.info("reloaded: %s", _told(change))
    for change in restart:
        log.warning("restart the node to change this: %s", _told(change))


def live_parts(parts: Parts, config: Config) -> Parts:
    """The parts of a node with what a configuration says of those that change while it serves."""
    budget = replace(
        parts.budget,
        connections_setting=config.limits.connections,
        partitions_setting=config.limits.partitions,
    )
    return replace(parts, budget=budget, **live_settings(config))


def live_settings(config: Config) -> dict[str, Any]:
    """Settings among the parts of a node that change while it serves, by their names there."""
    return {
        "streams_max": config.limits.streams,
        "defaults": config.log.of_streams,
        "retention_check_ms": config.log.retention_check,
        "compaction_bytes_per_second": config.log.compaction_bytes_per_second,
        "sys_interval_ms": config.mqtt.sys_interval,
        "declared": declared(config),
    }


def _told(change: Change) -> str:
    """`limits.stall is "1s", it was "100ms"`."""
    if change.table in TABLES:
        return f"[{change.table}.{change.key}]"
    field = next(
        field for table, key, field in settings() if (table, key) == (change.table, change.key)
    )

    def shown(value: object) -> str:
        text = written(change.key, field, value)
        return "not set" if text is None else literal(text)

    return f"{change.name} is {shown(change.after)}, it was {shown(change.before)}"
