"""`[pipeline]`: settings of `headrace pipeline` and `headrace api`.

Names of rules and of their settings are the pipeline's to judge; here they are texts and numbers.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field, PlainValidator

from headrace import job_limits, limits
from headrace.config.readers import (
    Bind,
    DataLocation,
    Flag,
    Table,
    Text,
    count,
    duration,
    flatten,
    words,
)
from headrace.model import Address
from headrace.text import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

_RULE: Final = "must be KIND.SETTING=NUMBER, such as idle_allocated.window_s=600"
_PRICE: Final = "must be MODEL=PRICE, such as 'NVIDIA H200=3.9' or default=2.5"
_SPARK: Final = (
    "must be KEY=VALUE with a key of Spark's, such as "
    "spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.0"
)


def number(value: object) -> float:
    """A finite number, also as a text.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            read = float(value)
        except (ValueError, OverflowError):
            read = float("nan")
        if isfinite(read):
            return read
    raise ValueError(f"must be a finite number; got {shown(value)}")


def price(value: object) -> float:
    """A finite number that is not negative.

    Raises:
        ValueError: it is none.
    """
    read = number(value)
    if read < 0:
        raise ValueError(f"must be a price, such as 0.12; got {shown(value)}")
    return read


def prices(value: object) -> dict[str, float]:
    """Prices by model, from a table or from texts `MODEL=PRICE`.

    Raises:
        ValueError: they are none.
    """
    try:
        return {model: price(each) for model, each in _items(value)}
    except ValueError:
        raise ValueError(f"{_PRICE}; got {_shown(value)}") from None


def rules(value: object) -> dict[str, dict[str, float]]:
    """Settings of rules by kind, from a table of tables or from texts `KIND.SETTING=NUMBER`.

    Raises:
        ValueError: they are none.
    """
    found: dict[str, dict[str, float]] = {}
    try:
        for kind, settings in _items(value):
            if isinstance(settings, dict):
                found[kind] = {name: number(each) for name, each in settings.items()}
                continue
            kind, dot, setting = kind.partition(".")  # noqa: PLW2901
            if not dot:
                raise ValueError  # noqa: TRY301 - one error for all that is no rule
            found.setdefault(kind, {})[setting] = number(settings)
    except ValueError:
        raise ValueError(f"{_RULE}; got {_shown(value)}") from None
    return found


def spark_conf(value: object) -> dict[str, str]:
    """Settings of Spark, from a table or from texts `KEY=VALUE`.

    Values may hold commas. So in one text, as of a variable, a comma ends a setting only where the
    next one begins.

    Raises:
        ValueError: they are none.
    """
    if isinstance(value, dict):
        return dict(_of_spark(key, each) for key, each in flatten(value).items())
    if isinstance(value, str):
        value = [each for each in re.split(r",\s*(?=spark\.[^\s,=]+=)", value) if each.strip()]
    pairs = [each.partition("=") for each in words(value)]
    return dict(_of_spark(key.strip(), each if equals else None) for key, equals, each in pairs)


def _of_spark(key: str, value: object) -> tuple[str, str]:
    if isinstance(value, bool):
        value = str(value).lower()
    is_known = value is not None and re.fullmatch(r"spark\.[^\s=\0]+", key)
    if not is_known or not isinstance(value, int | float | str) or "\0" in str(value):
        # What has no such key may be a secret.
        raise ValueError(f"{_SPARK}; got {shown(f'{key}={value}' if is_known else key)}")
    return key, str(value)


def _items(value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, dict):
        return value.items()
    pairs = [word.rpartition("=") for word in words(value)]
    if not all(name and equals for name, equals, _ in pairs):
        raise ValueError("a name, an equals sign, a number")
    return [(name, each) for name, _, each in pairs]


def _shown(value: object) -> str:
    """A value as errors tell it; of an option, its one text."""
    return shown(value[0] if isinstance(value, tuple) and len(value) == 1 else value)


def _memory(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[1-9][0-9]{0,11}[kmgtKMGT]?", value):
        return value
    raise ValueError(f'must be a size as Java writes it, such as "2g"; got {shown(value)}')


def _url(value: object) -> str | None:
    """A server's URL; an empty text is none."""
    if value in {None, ""}:
        return None
    if isinstance(value, str) and re.fullmatch(r"https?://[^/?#@\s]+/?", value):
        return value.rstrip("/")
    raise ValueError(f"must be a URL, such as http://127.0.0.1:8090; got {shown(value)}")


_Url = Annotated[str | None, PlainValidator(_url, json_schema_input_type=str)]
_Number = Annotated[float, PlainValidator(price, json_schema_input_type=float)]
_Prices = Annotated[
    dict[str, float], PlainValidator(prices, json_schema_input_type=dict[str, float] | list[str])
]
_Rules = Annotated[
    dict[str, dict[str, float]],
    PlainValidator(rules, json_schema_input_type=dict[str, dict[str, float]] | list[str]),
]
_SparkConf = Annotated[
    dict[str, str],
    PlainValidator(spark_conf, json_schema_input_type=dict[str, str | float | bool] | list[str]),
]
_Memory = Annotated[str, PlainValidator(_memory, json_schema_input_type=str)]


class PipelineSettings(Table):
    """`[pipeline]`."""

    kafka: Bind = Field(
        default=Address("127.0.0.1", 9092), description="Kafka door of the broker, HOST:PORT."
    )
    mqtt: Bind | None = Field(
        default=None,
        description="MQTT door of the broker, HOST:PORT, to publish alerts to; not set: none are.",
    )
    stream: Text = Field(default="gpu-telemetry", description="Stream with telemetry.")
    tables: DataLocation | None = Field(
        default=None,
        description="Folder of the tables, or the URI of one in an object store.",
    )
    checkpoint: DataLocation | None = Field(
        default=None,
        description="Folder of Spark's checkpoint, or the URI of one in an object store; belongs "
        "to the tables.",
    )
    every: Annotated[int, duration(1, 365 * limits.DAY_MS)] = Field(
        default=500, description="Time from one micro-batch to the next."
    )
    interval: Annotated[int, duration(1, limits.DAY_MS)] = Field(
        default=10_000,
        description="Length of an interval of `gpu_intervals`; fixed with the first micro-batch.",
    )
    watermark: Annotated[int, duration(1, 365 * limits.DAY_MS)] = Field(
        default=90_000, description="How far behind the newest a reading is still in time."
    )
    staleness: Annotated[int, duration(1_000, limits.DAY_MS)] | None = Field(
        default=None,
        description="Longest time between two scrapes of a GPU that still reports: counters and "
        "costs go on over it, and faults stay open. Not set: 150s, or twice the interval where "
        "that is longer.",
    )
    replay: Flag = Field(
        default=False,
        description="Whether telemetry of a file is played again, of which no event time is in "
        "the future.",
    )
    fail_on_data_loss: Flag = Field(
        default=True,
        description="Whether messages that retention took before they were read end the pipeline.",
    )
    messages_per_batch: Annotated[int, count(1, 10_000_000)] = Field(
        default=job_limits.PIPELINE_MESSAGES_PER_BATCH,
        description="Messages of one micro-batch at most.",
    )
    buckets: Annotated[int, count(1, job_limits.PIPELINE_BUCKETS_MAX)] | None = Field(
        default=None,
        description="Shares of the GPUs, each of which one task brings into the tables; fixed "
        "with the first micro-batch. Not set: as many as there are cores.",
    )
    format: Literal["parquet", "delta"] = Field(
        default="parquet",
        description="`delta`: each table is a Delta Lake table, too, which needs "
        "`headrace[delta]`.",
    )
    master: Text | None = Field(
        default=None,
        description="Spark to run on, such as `spark://host:7077`. Not set: this machine's cores.",
    )
    memory: _Memory = Field(default="2g", description="Heap of the JVM, as Java writes it.")
    spark_conf: _SparkConf = Field(
        default={},
        description="Further settings of Spark, which win over all others: a table "
        "`[pipeline.spark_conf]`, or texts `KEY=VALUE`.",
    )
    energy_price: _Number = Field(default=0.0, description="Of a kilowatt hour.")
    prices: _Prices = Field(
        default={},
        description="Of an hour of a GPU by model, `default` of any other: a table "
        "`[pipeline.prices]`, or texts `MODEL=PRICE`.",
    )
    api: _Url = Field(
        default=None,
        description="URL of a `headrace api` that answers a node's clients about telemetry, such "
        "as `http://127.0.0.1:8090`; the one setting here that a node has a use for.",
    )
    api_bind: Bind = Field(
        default=Address("127.0.0.1", 8090), description="Where `headrace api` listens."
    )
    rules: _Rules = Field(
        default={},
        description="Settings of the rules that find faults: tables `[pipeline.rules.KIND]`, or "
        "texts `KIND.SETTING=NUMBER`.",
    )
