"""The tables of a configuration that are a stream each, `[streams.NAME]` and `[queues.NAME]`.

Owns how names of settings, which have dots, are found in them: in quotes, or as tables of tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Final

from pydantic import Field, model_validator

from headrace import limits, queue_settings, settings
from headrace.config.readers import SettingOfStream, Table, Text, count, flatten
from headrace.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from headrace.settings import Setting

STREAM_KEYS: Final = ("partitions", "filters", "key")
"""What such a table holds beside settings."""


class StreamSettings(Table):
    """`[streams.NAME]`: created or altered at each start; other streams stay as they are.

    Everything beside `partitions`, `filters` and `key` is a setting under Kafka's name, in
    quotes: `"max.message.bytes" = "2MiB"`.
    """

    KNOWN: ClassVar[Mapping[str, Setting]] = SETTINGS
    NAMES: ClassVar[Container[str]] = SETTINGS

    partitions: Annotated[int, count(1, limits.STREAM_PARTITIONS_MAX)] | None = None
    filters: tuple[Text, ...] | None = None
    key: Text | None = None
    settings: dict[str, SettingOfStream] = Field(default_factory=dict)

    @classmethod
    def find(cls, name: str) -> Setting:
        """One of the settings that it may have.

        Raises:
            ValueError: there is none of this name.
        """
        return settings.find(name)

    @model_validator(mode="before")
    @classmethod
    def _gather_settings(cls, table: object) -> object:
        """Moves names with dots aside; unquoted ones have become tables of tables."""
        if not isinstance(table, dict):
            raise ValueError(f"must be a table; got {table!r}")  # noqa: TRY004 - pydantic's way
        own = {name: value for name, value in table.items() if name in STREAM_KEYS}
        other = flatten({name: value for name, value in table.items() if name not in own})
        gathered = {
            name: cls._read(name, other.pop(name))
            for name in tuple(other)
            if "." in name or name in cls.NAMES
        }
        return {**own, **other, "settings": gathered}

    @classmethod
    def _read(cls, name: str, value: object) -> object:
        """What a value means; one that means nothing stays, for whoever can say where it stands."""
        try:
            return cls.find(name).read(value)
        except ValueError:
            return value


class QueueTable(StreamSettings):
    """`[queues.NAME]`: created or altered at each start; other queues stay as they are.

    Everything beside `partitions`, `filters` and `key` is a setting of the queue, or of its stream.
    """

    KNOWN: ClassVar[Mapping[str, Setting]] = queue_settings.BOTH
    NAMES: ClassVar[Container[str]] = queue_settings.NAMES

    @classmethod
    def find(cls, name: str) -> Setting:
        """As `StreamSettings.find`."""
        return queue_settings.find_either(name)


TABLES: Final[Mapping[str, type[StreamSettings]]] = {
    "streams": StreamSettings,
    "queues": QueueTable,
}
"""By the name of the table that they are in."""
