"""How single values of settings are read: from TOML types and from strings alike.

The environment has only strings. Each reader raises `ValueError` with what it expects.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from headrace.model import Address
from headrace.text import parse_duration_ms, parse_size, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZE_PATTERN: Final = r"^[0-9.]+ *([KMGT]iB|[kMGT]B|B)?$"
DURATION_PATTERN: Final = r"^[0-9.]+ *(ms|s|m|h|d)$"
ADDRESS_PATTERN: Final = r"^.+:[0-9]{1,5}$"
"""What JSON Schema says of values; the readers here know better."""

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Within:
    """Reads a number and holds it to a range.

    Attributes:
        parse: reads it, in `unit`.
        low, high: the range, both included.
        unit: `bytes`, `milliseconds` or empty.
    """

    parse: Callable[[object], int]
    low: int
    high: int
    unit: str

    def __call__(self, value: object) -> int:
        """The number.

        Raises:
            ValueError: it is none, or out of range.
        """
        number = self.parse(value)
        if not self.low <= number <= self.high:
            unit = self.unit and f" {self.unit}"
            raise ValueError(f"must be from {self.low} to {self.high}{unit}; got {shown(value)}")
        return number


def _parse_count(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    raise ValueError(f"must be a whole number; got {shown(value)}")


def _parse_flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError(f"must be true or false; got {shown(value)}")


def _parse_text(value: object) -> str:
    if isinstance(value, str) and value and "\0" not in value:
        return value
    raise ValueError(f"must be a text that is not empty and has no NUL; got {shown(value)}")


def _parse_setting(value: object) -> int | float | str:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        return value
    switch = '; a switch is "on" or "off"' if isinstance(value, bool) else ""
    raise ValueError(f"must be a text or a number; got {shown(value)}{switch}")


def _parse_address(value: object) -> Address:
    if isinstance(value, Address):
        return value
    return Address.parse(value if isinstance(value, str) else repr(value))


def _parse_door(value: object) -> Address | None:
    if value is None or value == "off":
        return None
    try:
        return _parse_address(value)
    except ValueError as error:
        raise ValueError(f'{error}; or "off"') from None


def words(value: object) -> tuple[str, ...]:
    """Texts of a list; in a variable, with commas.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, str):
        return tuple(word for each in value.split(",") if (word := each.strip()))
    if isinstance(value, list | tuple):
        return tuple(_parse_text(each) for each in value)
    raise ValueError(f"must be a list of texts; got {shown(value)}")


def flatten(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The settings in a table of tables, by names with dots."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _parse_origins(value: object) -> tuple[str, ...]:
    origins = words(value)
    for origin in origins:
        if origin != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#\s]+", origin):
            raise ValueError(f"must be origins, such as https://example.org, or *; got {origin!r}")
    return origins


def _parse_networks(value: object) -> tuple[Network, ...]:
    try:
        return tuple(
            each if isinstance(each, Network) else ipaddress.ip_network(each)
            for each in (value if isinstance(value, tuple) else words(value))
        )
    except ValueError as error:
        raise ValueError(f"must be a list of networks, such as 10.0.0.0/8: {error}") from None


def _parse_mode(value: object) -> int:
    if isinstance(value, str) and re.fullmatch("0?[0-7]{3}", value):
        return int(value, 8)
    raise ValueError(f'must be the mode of a file in quotes, such as "0660"; got {shown(value)}')


def _parse_url_path(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"/[!-~]*", value) and not re.search("[?#]", value):
        return value
    raise ValueError(f"must be a path of a URL, such as /mqtt; got {shown(value)}")


def _parse_path(value: object) -> Path:
    return value if isinstance(value, Path) else Path(_parse_text(value))


def _parse_location(value: object) -> Path | str:
    """A path, or the URI of an object store as it is."""
    if isinstance(value, str) and "://" in value:
        return value
    return _parse_path(value)


def size(low: int, high: int) -> BeforeValidator:
    """A size in bytes."""
    return _quantity(Within(parse_size, low, high, "bytes"), SIZE_PATTERN)


def duration(low_ms: int, high_ms: int) -> BeforeValidator:
    """A duration in milliseconds."""
    within = Within(parse_duration_ms, low_ms, high_ms, "milliseconds")
    return BeforeValidator(within, json_schema_input_type=_text(DURATION_PATTERN))


def count(low: int, high: int) -> BeforeValidator:
    """A whole number."""
    return _quantity(Within(_parse_count, low, high, ""), r"^[0-9]+$")


def _quantity(within: Within, pattern: str) -> BeforeValidator:
    number = Annotated[int, Field(ge=within.low, le=within.high)]
    return BeforeValidator(within, json_schema_input_type=number | _text(pattern))


def _text(pattern: str) -> Any:  # noqa: ANN401 - a type
    return Annotated[str, Field(pattern=pattern)]


Flag = Annotated[bool, BeforeValidator(_parse_flag, json_schema_input_type=bool)]
Text = Annotated[
    str, BeforeValidator(_parse_text, json_schema_input_type=Annotated[str, Field(min_length=1)])
]
Bind = Annotated[
    Address, BeforeValidator(_parse_address, json_schema_input_type=_text(ADDRESS_PATTERN))
]
Door = Annotated[
    Address | None,
    BeforeValidator(_parse_door, json_schema_input_type=_text(f"^off$|{ADDRESS_PATTERN}")),
]
DataLocation = Annotated[Path | str, BeforeValidator(_parse_location, json_schema_input_type=str)]
DataPath = Annotated[Path, BeforeValidator(_parse_path, json_schema_input_type=str)]
SettingOfStream = Annotated[
    int | float | str,
    PlainValidator(_parse_setting, json_schema_input_type=int | float | str),
]
Words = Annotated[tuple[str, ...], BeforeValidator(words, json_schema_input_type=list[str])]
Origins = Annotated[
    tuple[str, ...], BeforeValidator(_parse_origins, json_schema_input_type=list[str])
]
Networks = Annotated[
    tuple[Network, ...], BeforeValidator(_parse_networks, json_schema_input_type=list[str])
]
Mode = Annotated[int, BeforeValidator(_parse_mode, json_schema_input_type=_text("^0?[0-7]{3}$"))]
UrlPath = Annotated[
    str, BeforeValidator(_parse_url_path, json_schema_input_type=_text(r"^/[!-~]*$"))
]


class Table(BaseModel):
    """One table of settings: no unknown names, no changes."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True
    )

    def paths(self) -> Iterator[Path]:
        """Files and folders that it names, and tables in it."""
        for _, value in self:
            if isinstance(value, Path):
                yield value
            elif isinstance(value, Table):
                yield from value.paths()
