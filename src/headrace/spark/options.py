"""Options of `format("headrace")`: what each means, and that none is accepted in vain.

Owns names, forms and which belong to which kind of read. Knows no broker.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from headrace import limits
from headrace.client import Login
from headrace.model import Address
from headrace.spark.errors import OptionError
from headrace.spark.payload import PAYLOADS, Payload
from headrace.text import nearest, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

EARLIEST: Final = -2
LATEST: Final = -1
"""Offsets with a meaning of their own, as Kafka and Spark's Kafka source write them."""

Kind = Literal["batch", "streaming"]
Named = Literal["earliest", "latest"]
PartitionOffsets = dict[str, dict[int, int]]

_NAMES: Final = (
    "servers", "stream", "streams", "streamPattern", "startingOffsets", "endingOffsets",
    "startingTimestamp", "endingTimestamp", "maxOffsetsPerTrigger", "minPartitions", "maxTasks",
    "failOnDataLoss", "groupId", "payload", "pushFilters", "user", "password",
)  # fmt: skip
_WRITE_NAMES: Final = ("servers", "stream", "user", "password")
_OF_SPARK: Final = {"checkpointlocation", "queryname"}
"""What Spark hands on with the options of a write, though it is for itself."""

_ONLY: Final[Mapping[str, Kind]] = {
    "endingOffsets": "batch",
    "endingTimestamp": "batch",
    "maxOffsetsPerTrigger": "streaming",
    "groupId": "streaming",
    "pushFilters": "batch",
}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one read, checked.

    Attributes:
        servers: Kafka doors, `HOST:PORT` separated by commas.
        streams: names; empty where `pattern` is given.
        pattern: regular expression that whole names must match, or None.
        starting: `earliest`, `latest`, or offsets by stream and partition.
        starting_ms: start at the first record of this time or later, instead of `starting`.
        ending: as `starting`, for the first offset that is not read.
        ending_ms: end before the first record of this time or later, instead of `ending`.
        max_offsets: records of one micro-batch at most; None is no bound.
        min_partitions: tasks to split into at least, where there are as many records.
        max_tasks: tasks at most; None is one for each core.
        fail_on_data_loss: whether records that are gone end the query.
        group: group that the progress is published to, or None.
        payload: what becomes of the values.
        push_filters: whether only what the query's filters leave is fetched.
        login: user and password, or None; no `repr` shows the password.
    """

    servers: str
    streams: tuple[str, ...]
    pattern: str | None
    starting: Named | PartitionOffsets
    starting_ms: int | None
    ending: Named | PartitionOffsets
    ending_ms: int | None
    max_offsets: int | None
    min_partitions: int | None
    max_tasks: int | None
    fail_on_data_loss: bool
    group: str | None
    payload: Payload
    push_filters: bool
    login: Login | None


def parse(given: Mapping[str, str], kind: Kind) -> Options:
    """Checks the options of a batch or streaming read.

    Defaults are those of Spark's Kafka source: a streaming read starts at the latest offsets, a
    batch read at the earliest.

    Raises:
        OptionError: an option is unknown, malformed, or not for this kind of read.
    """
    options = _canonical(given)
    for name, only in _ONLY.items():
        if name in options and only != kind:
            raise OptionError(f"option {name} is for {only} reads; remove it from this one")
    _exclusive(options, "startingOffsets", "startingTimestamp")
    _exclusive(options, "endingOffsets", "endingTimestamp")
    streams, pattern = _streams(options)
    least, most = _positive(options, "minPartitions"), _positive(options, "maxTasks")
    if least is not None and most is not None and least > most:
        raise OptionError(f"minPartitions {least} is more than maxTasks {most}; lower one of them")
    return Options(
        servers=_servers(options),
        streams=streams,
        pattern=pattern,
        starting=_offsets(options, "startingOffsets", "earliest" if kind == "batch" else "latest"),
        starting_ms=_milliseconds(options, "startingTimestamp"),
        ending=_offsets(options, "endingOffsets", "latest"),
        ending_ms=_milliseconds(options, "endingTimestamp"),
        max_offsets=_positive(options, "maxOffsetsPerTrigger"),
        min_partitions=least,
        max_tasks=most,
        fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
        group=_group(options),
        payload=_payload(options),
        push_filters=_flag(options, "pushFilters", default=False),
        login=_login(options),
    )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of one write, checked.

    Attributes:
        servers: Kafka doors, `HOST:PORT` separated by commas.
        stream: where rows go; None where each names its own.
        login: user and password, or None; no `repr` shows the password.
    """

    servers: str
    stream: str | None
    login: Login | None


def parse_write(given: Mapping[str, str]) -> WriteOptions:
    """Checks the options of a batch or streaming write.

    Raises:
        OptionError: an option is unknown, malformed, or not for a write.
    """
    own = {name: value for name, value in given.items() if name.lower() not in _OF_SPARK}
    options = _canonical(own, _WRITE_NAMES)
    stream = options.get("stream")
    if stream is not None and not stream.strip():
        raise OptionError("option stream must not be empty")
    if stream is not None:
        _short("stream", stream)
    return WriteOptions(_servers(options), stream, _login(options))


def payload_of(given: Mapping[str, str]) -> Payload:
    """The option `payload` alone, which says what columns there are.

    Raises:
        OptionError: an option is unknown, or there is no such payload.
    """
    return _payload(_canonical(given))


def _canonical(given: Mapping[str, str], names: tuple[str, ...] = _NAMES) -> dict[str, str]:
    """Spark compares options without case and hands them on in lower case."""
    by_lower = {name.lower(): name for name in names}
    options = {}
    for name, value in given.items():
        known = by_lower.get(name.lower())
        if known is None:
            raise OptionError(f"no option {shown(name)}; {nearest(name, names)}")
        options[known] = value
    return options


def _exclusive(options: Mapping[str, str], one: str, other: str) -> None:
    if one in options and other in options:
        raise OptionError(f"options {one} and {other} contradict; give one of them")


def _servers(options: Mapping[str, str]) -> str:
    servers = options.get("servers", "")
    try:
        for server in servers.split(","):
            Address.parse(server.strip(), such_as=9092)
    except ValueError as error:
        raise OptionError(f"option servers, the broker's Kafka door: {error}") from None
    return servers


def _streams(options: Mapping[str, str]) -> tuple[tuple[str, ...], str | None]:
    ways = ("stream", "streams", "streamPattern")
    given = [name for name in ways if name in options]
    if len(given) != 1:
        raise OptionError(f"give one of the options {', '.join(ways)}; given: {given or 'none'}")
    value = options[given[0]]
    if given == ["streamPattern"]:
        try:
            re.compile(value)
        except (re.error, OverflowError, RecursionError) as error:
            raise OptionError(f"option streamPattern is no regular expression: {error}") from None
        return (), value
    names = tuple(name.strip() for name in value.split(",")) if given == ["streams"] else (value,)
    if not all(names) or len(set(names)) != len(names):
        raise OptionError(f"option {given[0]} must name streams, each once; got {shown(value)}")
    for name in names:
        _short(given[0], name)
    return tuple(sorted(names)), None


def _positive(options: Mapping[str, str], name: str) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    number = _whole(value)
    if number is None or number < 1:
        raise OptionError(f"option {name} must be a whole number above 0; got {shown(value)}")
    return number


def _milliseconds(options: Mapping[str, str], name: str) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    number = _whole(value)
    if number is None:
        raise OptionError(
            f"option {name} must be milliseconds since 1970 (UTC); got {shown(value)}"
        )
    return number


def _whole(text: str) -> int | None:
    """A number of the wire's 64 bits, or None."""
    if not re.fullmatch("[0-9]{1,19}", text) or int(text) > limits.INT64_MAX:
        return None
    return int(text)


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = options.get(name)
    if value is None:
        return default
    if value.lower() not in {"true", "false"}:
        raise OptionError(f"option {name} must be true or false; got {value!r}")
    return value.lower() == "true"


def _group(options: Mapping[str, str]) -> str | None:
    group = options.get("groupId")
    if group is not None and not group.strip():
        raise OptionError("option groupId must not be empty")
    if group is not None:
        _short("groupId", group, limits.GROUP_ID_BYTES_MAX)
    return group


def _short(option: str, name: str, bytes_max: int = limits.STREAM_NAME_LENGTH_MAX) -> None:
    if len(name.encode()) > bytes_max:
        raise OptionError(
            f"option {option}: a name has {bytes_max} bytes at most; got {shown(name)}"
        )


def _payload(options: Mapping[str, str]) -> Payload:
    value = options.get("payload", "raw").lower()
    for payload in PAYLOADS:
        if value == payload:
            return payload
    raise OptionError(
        f"option payload must be one of {', '.join(PAYLOADS)}; got {options['payload']!r}"
    )


def _login(options: Mapping[str, str]) -> Login | None:
    user, password = options.get("user"), options.get("password")
    if user is None and password is None:
        return None
    if not user or password is None:
        raise OptionError("options user and password belong together; give both")
    return Login(user, password)


def _offsets(options: Mapping[str, str], name: str, default: Named) -> Named | PartitionOffsets:
    value = options.get(name, default).strip()
    if value.lower() == "latest":
        return "latest"
    if value.lower() == "earliest" and name == "startingOffsets":
        return "earliest"
    words = "earliest, latest" if name == "startingOffsets" else "latest"
    least = EARLIEST if name == "startingOffsets" else LATEST
    try:
        offsets = {
            stream: {_partition(text): _offset(offset, least) for text, offset in by.items()}
            for stream, by in json.loads(value).items()
        }
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise OptionError(
            f'option {name} must be {words} or JSON such as {{"stream": {{"0": 42, "1": -1}}}} '
            f"(-1 latest{', -2 earliest' if least == EARLIEST else ''}); got {shown(value)}"
        ) from None
    return offsets


def _partition(text: str) -> int:
    number = _whole(text)
    if number is None:
        raise ValueError(text)
    return number


def _offset(offset: object, least: int) -> int:
    if type(offset) is not int or not least <= offset <= limits.INT64_MAX:
        raise ValueError(offset)
    return offset
