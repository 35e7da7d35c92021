"""What commands of the pipeline are told: `[pipeline]`, and their options over it."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import click

from headrace.cli.paths import NamedPath, folder_to_make, held_folder
from headrace.config import read
from headrace.config.pipeline import prices, rules, spark_conf
from headrace.errors import ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from headrace.config import Config, PipelineSettings

_WRITTEN: Final = "name the folder that the pipeline writes"
_MANIFESTS: Final = "_manifest"
"""`headrace.pipeline.manifest.FOLDER`, which takes Spark to import."""

config_option: Final = click.option(
    "--config", "file", type=NamedPath(), metavar="FILE",
    help="Settings, as TOML; options win over its table [pipeline].",
)  # fmt: skip
tables_option: Final = click.option(
    "--tables", metavar="DIR",
    help="Folder of the tables, or a URI such as s3://bucket/tables.",
)  # fmt: skip

format_option: Final = click.option(
    "--format", type=click.Choice(["parquet", "delta"]),
    help="delta: each table is a Delta Lake table, too.  [parquet]",
)  # fmt: skip
watermark_option: Final = click.option(
    "--watermark", metavar="DURATION",
    help="How far behind the newest a reading is still in time.  [90s]",
)  # fmt: skip
staleness_option: Final = click.option(
    "--staleness", metavar="DURATION",
    help="Longest time between two scrapes of a GPU that still reports.  [150s]",
)  # fmt: skip


class Instant(click.ParamType[int]):
    """RFC 3339, as microseconds since the epoch."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """As click asks for it."""
        from headrace.pipeline.api.asked import instant  # noqa: PLC0415

        try:
            return instant(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def settings_of(file: Path | None, **options: object) -> Config:
    """Settings from the file, the environment, and these options where they are not None.

    Raises:
        ConfigError: one of them is wrong.
    """
    return read(file, os.environ, {"pipeline": options}).config


def pairs(read_pairs: Callable[[object], Any]) -> Callable[..., Any]:
    """A callback of an option that is given once for each pair."""

    def callback(_context: object, option: click.Parameter, texts: Sequence[str]) -> Any:  # noqa: ANN401
        found: dict[str, Any] = {}
        for text in texts:
            try:
                for name, value in read_pairs((text,)).items():
                    both = isinstance(value, dict)
                    found[name] = found.get(name, {}) | value if both else value
            except ValueError as error:
                raise click.BadParameter(str(error), param=option) from None
        return found

    return callback


rules_option: Final = click.option(
    "--rule", "rules", multiple=True, metavar="KIND.SETTING=NUMBER", callback=pairs(rules),
    help="A setting of a rule that finds faults.",
)  # fmt: skip
prices_option: Final = click.option(
    "--price", "prices", multiple=True, metavar="MODEL=PRICE", callback=pairs(prices),
    help="Of an hour of a GPU; 'default' is that of any other model.",
)  # fmt: skip

energy_price_option: Final = click.option(
    "--energy-price", metavar="PRICE", help="Of a kilowatt hour.  [0]"
)
spark_conf_option: Final = click.option(
    "--spark-conf", "spark_conf", multiple=True, metavar="KEY=VALUE", callback=pairs(spark_conf),
    help="A further setting of Spark, such as spark.jars.packages=GROUP:NAME:VERSION.",
)  # fmt: skip


def rules_with(
    settings: PipelineSettings, options: dict[str, dict[str, float]]
) -> dict[str, dict[str, float]]:
    """Settings of rules: those of the options, then the others."""
    held = settings.rules
    return {kind: held.get(kind, {}) | options.get(kind, {}) for kind in held | options}


def needed(settings: PipelineSettings, key: str) -> Path | str:
    """A folder that a command cannot do without.

    Raises:
        MissingParameter: nobody names it.
    """
    path: Path | str | None = getattr(settings, key)
    if path is None:
        raise click.MissingParameter(
            f"(or [pipeline] {key} in the file of --config)", param_hint=f"'--{key}'",
            param_type="option",
        )  # fmt: skip
    return path


def tables_of(file: Path | None, tables: str | None) -> Path | str:
    """The folder of tables that is there to be read.

    Raises:
        ConfigError, InputError, MissingParameter: it is not named, not there, or has none.
    """
    named = needed(settings_of(file, tables=tables).pipeline, "tables")
    if isinstance(named, str):
        return named
    folder = existing(named)
    if not (folder / _MANIFESTS).is_dir():
        raise InputError(f"tables {folder}: none are there yet; {_WRITTEN}")
    return folder


@contextmanager
def tables_read(place: Path | str) -> Iterator[None]:
    """Says in one line what of the tables cannot be read or written."""
    import pyarrow as pa  # noqa: PLC0415 - takes a moment, and not every command needs it

    try:
        yield
    except ConnectionError:  # of another process: the tables have none
        raise
    except (pa.ArrowException, OSError) as error:
        why = str(error).splitlines()[0]
        if isinstance(error, OSError) and error.filename and error.strerror:
            why = f"{error.filename}: {error.strerror}"
        if isinstance(error, FileNotFoundError):  # of which Arrow says nothing but its name
            why = f"{error.filename or why}: no such file, though a version of the tables names it"
        raise click.ClickException(
            f"tables {place}: {why}\nmend that, or restore the tables from a copy"
        ) from error


def existing(folder: Path | str) -> Path:
    """A folder of this machine that is there to be read.

    Raises:
        InputError: it is not there, or may not be read; it is in an object store.
    """
    if isinstance(folder, str):
        raise InputError(
            f"tables {folder}: this command reads a folder of this machine; mount or copy them"
        )
    return held_folder(folder, "tables", _WRITTEN)


def place_to_make(place: Path | str, option: str) -> Path | str:
    """A folder, or the URI of one in an object store, that a command writes in.

    Raises:
        InputError: the folder is not there and cannot be made, or may not be written.
    """
    return place if isinstance(place, str) else folder_to_make(place, option)


def need_format(settings: PipelineSettings) -> None:
    """Refuses a format of the tables that takes what is not installed.

    Raises:
        InputError: it does.
    """
    if settings.format == "delta" and find_spec("deltalake") is None:
        raise InputError("the format delta needs deltalake: pip install 'headrace[delta]'")


def wrong_rules(file: Path | None, error: Exception, options: object) -> Exception:
    """What to raise where the pipeline knows no such rule, or no such setting of it."""
    if options or file is None:
        return click.BadParameter(str(error), param_hint="--rule")
    return ConfigError(f"{file}: [pipeline.rules]: {error}")


def need_spark() -> None:
    """Ends the command where what the pipeline is made of is not installed."""
    if find_spec("pyspark") is None or find_spec("duckdb") is None:
        click.echo(
            "the pipeline needs Spark, which is not installed\ntry: pip install 'headrace[spark]'",
            err=True,
        )
        sys.exit(1)
