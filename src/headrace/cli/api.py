"""`headrace api`: answers about GPUs over HTTP, from the tables of the pipeline."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from typing import TYPE_CHECKING

import click
import uvloop

from headrace.adapters.machine import keep_freed_memory, log_to_stderr, notify_manager
from headrace.cli.pipeline_settings import (
    config_option,
    existing,
    need_spark,
    needed,
    settings_of,
    tables_option,
)
from headrace.cli.processes import announce, stop_on_signals
from headrace.errors import ConfigError
from headrace.model import Address

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)


@click.command(short_help="Answer questions about GPUs, from the tables.")
@config_option
@tables_option
@click.option("--bind", metavar="HOST:PORT", help="Where to listen.  [127.0.0.1:8090]")
@click.option("--json", "as_json", is_flag=True, help="Print the ready line as one JSON object.")
def api(*, file: Path | None, tables: str | None, bind: str | None, as_json: bool) -> None:
    """Serve GPUs, their telemetry, detections and the fleet over HTTP until SIGTERM or Ctrl-C.

    A process of its own beside `headrace pipeline run`, whose tables it reads as they grow. It
    knows no users and listens on this machine alone; a node whose [pipeline] api names it lets its
    users ask, at /api/v1/gpus, /api/v1/detections and /api/v1/fleet. /api/docs says what there is.

    \b
    Examples:
      headrace api --tables tables
      headrace api --config headrace.toml --bind 127.0.0.1:0 --json
    """
    if bind is not None:
        try:
            Address.parse(bind, such_as=8090)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--bind") from None
    config = settings_of(file, tables=tables, api_bind=bind)
    address = config.pipeline.api_bind
    if not address.loopback:
        raise ConfigError(
            f"headrace api knows no users, and at {address} would be open to everyone who reaches "
            f"this machine; bind it to loopback: --bind 127.0.0.1:{address.port}\n"
            "and let users ask through a node: [pipeline] api names this address there"
        )
    folder = needed(config.pipeline, "tables")
    if not isinstance(folder, str):
        existing(folder)
    need_spark()
    log_to_stderr(config.logging.level, config.logging.format, config.node.name)
    keep_freed_memory()  # each answer takes megabytes of columns, and gives them back
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(folder, address, as_json=as_json))


async def _serve(folder: Path | str, address: Address, *, as_json: bool) -> None:
    from headrace.pipeline.api.server import ApiServer  # noqa: PLC0415 - Arrow takes a second

    stopping = stop_on_signals()
    server = ApiServer(folder)
    bound = await server.open(address)
    try:
        if not stopping.is_set():
            told = {"ready": True, "pid": os.getpid(), "tables": str(folder), "http": str(bound)}
            announce(
                json.dumps(told | {"version": server.version})
                if as_json
                else f"headrace api ready: http {bound}, tables {folder} (version {server.version})"
            )
            notify_manager("READY=1")
        await stopping.wait()
        log.info("stopping")
        notify_manager("STOPPING=1")
    finally:
        await server.close()
    log.info("stopped")
