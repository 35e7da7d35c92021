"""Reads settings from their four places, the later over the earlier, and explains what is wrong.

Invariant: an error names the place (file, variable or option), the setting, what was found, and
what to do, in one line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

from pydantic import BaseModel, ValidationError

from headrace import limits
from headrace.config import mosquitto
from headrace.config.lines import lines_of
from headrace.config.readers import flatten
from headrace.config.schema import Config
from headrace.config.streams import STREAM_KEYS, TABLES, StreamSettings
from headrace.config.testing import TESTING, batch_delay_ms
from headrace.errors import ConfigError
from headrace.text import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

PREFIX: Final = "HEADRACE_"
ERRORS_SHOWN_MAX: Final = 3

BARE_RETENTION_MS_MIN: Final = 3_600_000
"""Of a time of retention without a unit: below it seconds or days were meant, most likely. A month
in seconds is less."""

LATER_TABLES: Final = frozenset({"cluster"})
"""Tables that CONTRACT names and this version does not serve."""

Keys: TypeAlias = tuple[str, ...]
"""Table and key, and what is inside of it."""

Place: TypeAlias = Callable[[Keys], str]
"""Names where a setting was read, and the setting, as an error does."""


Declared: TypeAlias = "Mapping[str, Mapping[str, StreamSettings]]"
"""Streams that a configuration declares, by table and name."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """One of the places that settings come from.

    Attributes:
        place: names a setting there, for an error.
        origin: names where it is said, for who knows the setting.
    """

    place: Place
    origin: Place


@dataclass(frozen=True, slots=True)
class Sources:
    """The settings of a node, and who says so.

    Attributes:
        config: what holds.
        doubts: what is accepted and hardly meant, a line each.
    """

    config: Config
    _layers: Mapping[Keys, _Layer]
    doubts: tuple[str, ...] = ()

    def origin(self, *path: str) -> str | None:
        """Who says what the setting at `path` is: `FILE:LINE`, a variable or an option.

        None where nobody does, so that its default holds.
        """
        layer = self._layers.get(path[:2])
        return None if layer is None else layer.origin(path)


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, Mapping[str, object]] | None = None,
) -> Config:
    """As `read`, without who says so."""
    return read(file, environment, options).config


def read(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, Mapping[str, object]] | None = None,
) -> Sources:
    """The settings of a node.

    Args:
        file: a TOML file.
        environment: variables; `HEADRACE_TABLE__KEY` among them are read.
        options: of the command line, as `{table: {key: value}}`; None values are not set.

    Raises:
        ConfigError: at most three lines, one for each thing that is wrong; the last says how many
            more there are.
    """
    merged: dict[str, Any] = {}
    places: dict[Keys, _Layer] = {}
    if file is not None:
        tables, layer = _from_file(file)
        _merge(merged, places, tables, layer)
    _merge(merged, places, _from_environment(environment or {}), _Layer(_variable, _variable))
    _merge(merged, places, _from_options(options or {}), _Layer(_option, _option))
    _refuse_later_tables(merged, places)
    try:
        config = Config.model_validate(merged)
    except ValidationError as error:
        lines = _explained(error, Config, lambda path: _place(places, path))
        lines += _wrong_in_streams(_readable_streams(merged), places)
        raise ConfigError(few(lines)) from None
    declared = {table: getattr(config, table) for table in TABLES}
    if lines := _wrong_in_streams(declared, places) + _declared_twice(declared, places):
        raise ConfigError(few(lines))
    return Sources(config, places, tuple(_doubts(merged, places)))


def few(lines: Sequence[str]) -> str:
    """The first errors, and how many more there are."""
    more = len(lines) - ERRORS_SHOWN_MAX
    return "\n".join(lines[:ERRORS_SHOWN_MAX]) + (f" (and {more} more)" if more > 0 else "")


def explain(
    error: ValidationError, model: type[BaseModel], place: Callable[[Keys], str] = ".".join
) -> str:
    """One readable line for each of the first errors, and how many more there are.

    Args:
        error: what validation found.
        model: what was validated; its names are the known ones.
        place: how to name the setting at a path.
    """
    return few(_explained(error, model, place))


def _explained(
    error: ValidationError, model: type[BaseModel], place: Callable[[Keys], str]
) -> list[str]:
    lines = []
    for item in error.errors(include_url=False):
        path = tuple(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            known = mosquitto.hint(path[-1]) or nearest(path[-1], _names(model, path[:-1]))
            lines.append(f"{place(path)}: unknown; {known}")
        elif item["type"] == "tuple_type":
            lines.append(f"{place(path)}: must be a list; got {item['input']!r:.200}")
        elif item["type"] == "value_error":
            lines.append(f"{place(path)}: {item['ctx']['error']}")
        else:
            lines.append(f"{place(path)}: {_lower_first(item['msg'])}; got {item['input']!r:.200}")
    return lines


def _from_file(file: Path) -> tuple[dict[str, Any], _Layer]:
    """The tables of a file, and what names places in it."""
    text = _text_of(file)
    tables = _parse(file, text)
    lines = lines_of(text.replace("\r\n", "\n"))

    def origin(path: Keys) -> str:
        for length in range(len(path), 0, -1):
            line = lines.get(".".join(_as_written(path)[:length]))
            if line is not None:
                return f"{file}:{line}"
        return str(file)

    return tables, _Layer(lambda path: f"{origin(path)}: {_in_file(path)}", origin)


def _text_of(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(limits.CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    if len(content) > limits.CONFIG_BYTES_MAX:
        raise ConfigError(
            f"{file}: is longer than {limits.CONFIG_BYTES_MAX} bytes; is this the right file?"
        )
    try:
        return content.decode("utf-8-sig")  # editors of Windows begin a file with a mark
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: is not TOML: {error}") from None


def _parse(file: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        if mosquitto.is_conf(text):
            raise ConfigError(
                f"{file}: is a mosquitto.conf; {mosquitto.PAGE} says how that is written here"
            ) from None
        raise ConfigError(f"{file}: is not TOML: {_lower_first(str(error))}") from None
    except RecursionError:  # tomllib descends once for each level
        raise ConfigError(f"{file}: is nested too deeply; no setting needs that") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    batch_delay_ms(environment)  # what tests set is no setting, and wrong early all the same
    for variable, value in sorted(environment.items()):
        if not variable.startswith(PREFIX) or variable.startswith(TESTING):
            continue
        table, separator, key = variable.removeprefix(PREFIX).lower().partition("__")
        if not separator:
            _refuse_single_underscore(variable)
            continue
        if table in TABLES:
            raise ConfigError(f"{variable}: {table} are declared in the file, under [{table}.NAME]")
        tables.setdefault(table, {})[key] = value
    return tables


def _refuse_single_underscore(variable: str) -> None:
    """Refuses a setting whose table is missing or misspelt, and nothing else.

    Other variables pass: HEADRACE_URL, and what Kubernetes sets for a service of this name.
    """
    name = variable.removeprefix(PREFIX).lower()
    for table in Config.model_fields:
        for key in _names(Config, (table,)) if table not in TABLES else ():
            if name in {key, f"{table}_{key}"}:
                meant = f"{PREFIX}{table}__{key}".upper()
                raise ConfigError(f"{variable}: no such variable; did you mean {meant}?")


def _from_options(options: Mapping[str, Mapping[str, object]]) -> dict[str, Any]:
    chosen = {
        table: {key: value for key, value in keys.items() if value is not None}
        for table, keys in options.items()
    }
    return {table: keys for table, keys in chosen.items() if keys}


def _merge(
    merged: dict[str, Any],
    places: dict[Keys, _Layer],
    tables: Mapping[str, Any],
    layer: _Layer,
) -> None:
    for table, keys in tables.items():
        if not isinstance(keys, dict) or not keys:
            merged.setdefault(table, keys)
            places[table,] = layer
            continue
        held = merged.get(table)
        if not isinstance(held, dict):
            if held is not None:
                named = places[table,].place((table,))
                raise ConfigError(f"{named}: must be a table of settings; got {held!r:.200}")
            held = merged[table] = {}
        places.setdefault((table,), layer)
        for key, value in keys.items():
            held[key] = value
            places[table, key] = layer


def _as_written(path: Keys) -> Keys:
    """Without the name under which what a stream sets is gathered."""
    is_setting = path[0] in TABLES and path[2:3] == ("settings",)
    return path[:2] + path[3:] if is_setting else path


def _in_file(path: Keys) -> str:
    path = _as_written(path)
    if path[:2] == ("access", "rules") and path[2:3] and path[2].isdecimal():
        rule = f"[[access.rules]] rule {int(path[2]) + 1}"  # as `headrace access check` counts
        return " ".join((rule, ".".join(path[3:]))).rstrip()
    depth = 2 if path[0] in TABLES else 1
    table, rest = ".".join(path[:depth]), ".".join(path[depth:])
    return f"[{table}] {rest}" if rest else f"[{table}]"


def _option(path: Keys) -> str:
    if len(path) == 1:
        return f"[{path[0]}]"
    name = path[0] if path[1] == "bind" else path[1].removesuffix("_bind")
    return f"--{name.replace('_', '-')}"


def _variable(path: Keys) -> str:
    if len(path) == 1:
        return f"[{path[0]}]"
    return PREFIX + "__".join(path[:2]).upper()


def _place(places: Mapping[Keys, _Layer], path: Keys) -> str:
    """Where the setting at `path`, or its table, was read."""
    within = [key for key in places if key[0] == path[0] and len(key) > 1]
    if path[0] not in Config.model_fields and within:  # its settings show where it is
        return places[within[0]].place(within[0])
    for length in (2, 1):
        layer = places.get(path[:length])
        if layer is not None:
            return layer.place(path)
    return f"[{path[0]}]"


def _wrong_in_streams(declared: Declared, places: Mapping[Keys, _Layer]) -> list[str]:
    lines = []
    for table, streams in declared.items():
        for stream, said in streams.items():
            for name, value in said.settings.items():
                try:
                    said.find(name).read(value)
                except ValueError as error:
                    wrong = _unquoted(table, stream, name, said) or error
                    lines.append(f"{_place(places, (table, stream, name))}: {wrong}")
    return lines


def _unquoted(table: str, stream: str, name: str, said: StreamSettings) -> str | None:
    """What to write where a stream's name with dots has become a table in a table."""
    first, _, rest = name.partition(".")
    if name not in said.NAMES and (rest in STREAM_KEYS or rest in said.NAMES):
        return f'a name with dots stands in quotes: [{table}."{stream}.{first}"]'
    return None


def _declared_twice(declared: Declared, places: Mapping[Keys, _Layer]) -> list[str]:
    """A queue is the stream of its name: two tables would say two things of one."""
    return [
        f"{_place(places, ('queues', name))}: [streams.{name}] is there too, and a queue is a "
        f"stream; say all of it in one of the two"
        for name in declared["queues"]
        if name in declared["streams"]
    ]


def _readable_streams(merged: Mapping[str, Any]) -> Declared:
    """Those of the streams that can be read where something else cannot."""
    readable: dict[str, dict[str, StreamSettings]] = {}
    for kind, model in TABLES.items():
        streams = readable[kind] = {}
        for name, table in _tables(merged, kind):
            with suppress(ValidationError):
                streams[name] = model.model_validate(table)
    return readable


def _tables(merged: Mapping[str, Any], kind: str) -> Iterable[tuple[str, Any]]:
    tables = merged.get(kind)
    return tables.items() if isinstance(tables, dict) else ()


def _doubts(merged: Mapping[str, Any], places: Mapping[Keys, _Layer]) -> Iterator[str]:
    """A time of retention without a unit that is short: Kafka's milliseconds are rarely meant."""
    held: list[tuple[Keys, object]] = [
        ((kind, stream, "retention.ms"), flatten(table).get("retention.ms"))
        for kind in TABLES
        for stream, table in _tables(merged, kind)
    ]
    held.append((("log", "retention_ms"), merged.get("log", {}).get("retention_ms")))
    for path, value in held:
        text = str(value).strip()
        if text.isdecimal() and int(text) < BARE_RETENTION_MS_MIN:
            yield (
                f"{_place(places, path)}: {text} is taken as milliseconds, as Kafka does, and what "
                f'is older is deleted; write it with its unit: "{text}ms", "{text}s", "{text}d"'
            )


def _refuse_later_tables(merged: Mapping[str, Any], places: Mapping[Keys, _Layer]) -> None:
    for table in sorted(LATER_TABLES & merged.keys()):
        place = _place(places, (table,))
        raise ConfigError(f"{place}: [{table}] is not served by this version; remove it")


def _names(model: type[BaseModel], path: Keys) -> list[str]:
    """Known names beside the last part of a path."""
    for part in path:
        field = model.model_fields.get(part)
        candidates = () if field is None else (field.annotation, *get_args(field.annotation))
        inner = [each for each in candidates if isinstance(each, type) and _is_model(each)]
        model = inner[0] if inner else model
    if issubclass(model, StreamSettings):
        return [*STREAM_KEYS, *model.KNOWN]
    return [field.alias or name for name, field in model.model_fields.items()]


def _is_model(candidate: type) -> bool:
    return issubclass(candidate, BaseModel)


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
