"""`headrace config`: settings looked at before a node is started with them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from headrace import queue_settings
from headrace.cli.access import is_open
from headrace.cli.listeners import OPTIONS, Listeners, addresses
from headrace.cli.paths import NamedPath
from headrace.config import Sources, read
from headrace.config.changes import is_live
from headrace.config.load import few
from headrace.config.reference import json_schema, literal, of_stream, settings, written
from headrace.config.streams import TABLES
from headrace.errors import CatalogError, ConfigError
from headrace.kernel import access
from headrace.kernel.catalog import Catalog, Change

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.config import Config, QueueTable

COMMENT_COLUMN = 44

file_option = click.option(
    "--config", "file", type=NamedPath(), metavar="FILE", help="Settings, as TOML."
)


@click.group(short_help="Check and show a node's settings.")
def config() -> None:
    """Settings, from the file and the environment, without starting a node.

    \b
    Examples:
      headrace config check --config headrace.toml
      headrace config show --config headrace.toml
      HEADRACE_LIMITS__STALL=1s headrace config show --json
      headrace config schema > headrace.schema.json
    """


@config.command()
@file_option
def check(*, file: Path | None) -> None:
    """Say what a node would not accept, by file and line; exit 2 where that is so.

    Certificates are read; whether addresses and the data folder are free a start alone can tell.
    """
    sources = read(file, os.environ)
    checked(sources)
    if (twins := access.twins(addresses(sources.config))) is not None:
        raise ConfigError(twins)
    Listeners(sources.config, lambda: True)
    for doubt in sources.doubts:
        click.echo(f"warning: {doubt}", err=True)
    click.echo(f"{file or 'the environment'}: a node can start with it")


def checked(sources: Sources) -> None:
    """Holds settings to what they mean together.

    Raises:
        ConfigError, UsersError: a node would not start with them.
    """
    refusal = access.bind(addresses(sources.config), OPTIONS)
    if refusal is not None and is_open(sources.config):
        raise ConfigError(refusal)
    limits = sources.config.limits
    catalog = Catalog(
        streams_max=limits.streams,
        partitions_max=limits.partitions,
        defaults=sources.config.log.of_streams,
    )
    wrong = []
    for name, change in declared(sources.config).items():
        try:
            catalog.put(catalog.create(name, change, wall_ms=0))
        except CatalogError as error:
            table = change.table
            wrong.append(f"{sources.origin(table, name)}: [{table}.{name}]: {error}")
    if wrong:
        raise ConfigError(few(wrong))


def declared(config: Config) -> dict[str, Change]:
    """The streams that a configuration declares, and the queues, which are streams too."""
    streams = {
        name: Change(stream.partitions, stream.filters, stream.key, stream.settings)
        for name, stream in config.streams.items()
    }
    return streams | {name: _of_queue(queue) for name, queue in config.queues.items()}


def _of_queue(table: QueueTable) -> Change:
    of_queue, of_stream = queue_settings.split(table.settings)
    return Change(table.partitions, table.filters, table.key, of_stream, of_queue)


@config.command()
@file_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(*, file: Path | None, as_json: bool) -> None:
    """Print every setting that holds, and who says so.

    The output is a file that can be used as one: what is not set stands in comments.
    """
    sources = read(file, os.environ)
    shown = _shown(sources)
    if as_json:
        click.echo(json.dumps(shown))
        return
    for number, (table, keys) in enumerate(shown.items()):
        click.echo(f"{chr(10) if number else ''}[{table}]")
        for key, each in keys.items():
            name = literal(key) if "." in key else key
            if each["value"] is None:
                click.echo(f"# {name}: not set")
            else:
                line = f"{name} = {literal(each['value'])}"
                click.echo(f"{line:<{COMMENT_COLUMN}}  # {each['source']}")


def _shown(sources: Sources) -> dict[str, dict[str, Any]]:
    """By table and key: value, source, and whether it changes live."""
    shown: dict[str, dict[str, Any]] = {}
    for table, key, field in settings():
        value = getattr(getattr(sources.config, table), key)
        shown.setdefault(table, {})[key] = {
            "value": written(key, field, value),
            "source": sources.origin(table, key) or "default",
            "live": is_live(table, key),
        }
    for kind in TABLES:
        for name, stream in getattr(sources.config, kind).items():
            shown[f"{kind}.{literal(name) if '.' in name else name}"] = {
                key: {"value": value, "source": sources.origin(kind, name, key), "live": True}
                for key, value in of_stream(stream).items()
            }
    return shown


@config.command()
def schema() -> None:
    """Print a JSON Schema of the file, for editors and for checks elsewhere."""
    click.echo(json.dumps(json_schema(), indent=2))
