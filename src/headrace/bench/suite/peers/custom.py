"""Brokers that a user names in a file: `[peer.NAME]`, started by a command."""

from __future__ import annotations

import re
import shlex
import tomllib
import zlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.adapters.children import unused
from headrace.bench.suite.peers.peer import Door, Mode
from headrace.bench.suite.peers.process import Child, find, said
from headrace.errors import ConfigError
from headrace.text import nearest, shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from headrace.bench.suite.peers.peer import Feature, Running

PORTS: Final = {Door.MQTT: "{port}", Door.KAFKA: "{kafka_port}", Door.QUEUE: "{http_port}"}
"""What stands in a command for the port of a door."""

FOLDER: Final = "{folder}"

_VERSION_PATTERN: Final = r"(\S*\d\S*)"
"""The first word with a digit."""

_NAME: Final = re.compile(r"[\w-]{1,32}", re.ASCII)
"""It is a part of a folder's name."""


@dataclass(slots=True, kw_only=True)
class Custom:
    """One section.

    Attributes:
        name: of the section.
        command: starts it in the foreground, without a shell; `PORTS` and `FOLDER` are replaced.
        durable: the same in durable mode; empty where it has none.
        doors: those that the command opens.
        version_command: says its version; empty: unknown.
        promise_memory, promise_durable: what an acknowledgement means.
        install: what installs it.
        lacks: nothing; what it cannot do is the trouble of a row.
    """

    name: str
    command: str
    durable: str = ""
    doors: frozenset[Door] = frozenset({Door.MQTT})
    version_command: str = ""
    promise_memory: str = "not said"
    promise_durable: str = "not said"
    install: str = ""
    lacks: frozenset[Feature] = frozenset()

    @classmethod
    def of(cls, name: str, section: Mapping[str, Any]) -> Self:
        """A section of a file.

        Raises:
            ConfigError: something of it is missing, unknown or of no use; without the file's name.
        """
        where = f"[peer.{name}]"
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{where}: a name has 1 to 32 of a-z A-Z 0-9 _ -")
        known = [field.name for field in fields(cls) if field.name not in ("name", "lacks")]
        for key, value in section.items():
            if key not in known:
                raise ConfigError(f"{where}: unknown setting {key}; {nearest(key, known)}")
            if key != "doors" and not isinstance(value, str):
                raise ConfigError(f"{where}: {key} must be a text; got {shown(value)}")
        if "command" not in section:
            raise ConfigError(f'{where}: needs a command, such as "broker --port {{port}}"')
        values = dict(section)
        if "doors" in section:
            values["doors"] = _doors(where, section["doors"])
        peer = cls(name=name, **values)
        peer._check(where)
        return peer

    def _check(self, where: str) -> None:
        for command in (self.command, *filter(None, (self.durable, self.version_command))):
            _check_words(where, command)
        for command in filter(None, (self.command, self.durable)):
            for door in self.doors:
                if PORTS[door] not in command:
                    raise ConfigError(
                        f"{where}: {command!r} does not say {PORTS[door]}, where {door} is to be"
                    )

    def version(self) -> str:
        """What the version command says first that has a digit, and a digest of how it is started.

        Raises:
            LeftOutError: the broker's program is not there, or says no version.
        """
        find(shlex.split(self.command)[0])
        command = self.version_command
        version = said(shlex.split(command), _VERSION_PATTERN) if command else "unknown"
        started = f"{self.command}\0{self.durable}\0{sorted(self.doors)}"
        return f"{version}, command {zlib.crc32(started.encode()):08x}"

    def promise(self, door: Door, mode: Mode) -> str | None:
        """What the file says of an acknowledgement."""
        if door not in self.doors:
            return None
        if mode is Mode.MEMORY:
            return self.promise_memory
        return self.promise_durable if self.durable else None

    def start(self, folder: Path, mode: Mode) -> AbstractContextManager[Running]:
        """Runs the command of the mode.

        Raises:
            StartError: it did not come up.
        """
        doors = dict(zip(sorted(self.doors), unused(len(self.doors)), strict=True))
        words = shlex.split(self.command if mode is Mode.MEMORY else self.durable)
        places = {PORTS[door]: str(address.port) for door, address in doors.items()}
        for placeholder, value in (places | {FOLDER: str(folder)}).items():
            words = [word.replace(placeholder, value) for word in words]
        return Child(self.name, words, folder, doors).running()


def _check_words(where: str, command: str) -> None:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"{where}: cannot be read, {error}: {command}") from None
    if not words or not words[0]:
        raise ConfigError(f"{where}: a command is empty")


def _doors(where: str, value: object) -> frozenset[Door]:
    known = [str(door) for door in Door]
    if not isinstance(value, list) or not value or any(each not in known for each in value):
        raise ConfigError(f"{where}: doors is a list of {', '.join(known)}; got {shown(value)}")
    return frozenset(Door(each) for each in value)


def read(path: Path) -> list[Custom]:
    """All sections of a file.

    Raises:
        ConfigError: it cannot be read, or a section makes no sense; names the file.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    sections = content.pop("peer", {})
    if content or not isinstance(sections, dict) or not sections:
        raise ConfigError(f"{path}: has sections [peer.NAME], and nothing else")
    try:
        return [
            Custom.of(name, section if isinstance(section, dict) else {"command": section})
            for name, section in sections.items()
        ]
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
