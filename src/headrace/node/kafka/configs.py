"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: a stream's settings as topic configs.

The node's own settings are shown under the names that Kafka's brokers give them, and not changed
here: they stand in its configuration.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import HeadraceError, InvalidStreamError
from headrace.kernel.catalog import Change
from headrace.node.kafka.pace import paced
from headrace.node.kafka.topics import NODE_ID, refused, values_of
from headrace.settings import DEFAULTS, SETTINGS, Kind, find
from headrace.text import shown
from headrace.wire.kafka.admin import (
    AlterConfigsResponse,
    AlterConfigsResult,
    ConfigEntry,
    ConfigSynonym,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headrace.node.kafka.connection import KafkaConnection
    from headrace.node.kafka.door import KafkaDoor
    from headrace.settings import Setting, Settings, Value
    from headrace.wire.kafka.admin import (
        AlterConfigsRequest,
        AlterConfigsResource,
        DescribeConfigsRequest,
        DescribeConfigsResource,
        IncrementalAlterConfigsRequest,
        IncrementalConfig,
        IncrementalResource,
    )
    from headrace.wire.kafka.frames import Request

TOPIC: Final = 2
BROKER: Final = 4
"""Resources (`ConfigResource.Type`)."""

OWN: Final = 1
OF_NODE: Final = 4
DEFAULT: Final = 5
"""Where a value comes from (`DescribeConfigsResponse.ConfigSource`): dynamic topic, static broker
and default config."""

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
"""Operations (`AlterConfigOp.OpType`)."""

_TYPES: Final = {Kind.CHOICE: 2, Kind.COUNT: 5, Kind.SIZE: 5, Kind.DURATION: 5, Kind.RATIO: 6}
_LIST: Final = 7
"""How a value is written (`DescribeConfigsResponse.ConfigType`): string, long, double, list."""


async def describe(
    door: KafkaDoor, _: KafkaConnection, request: Request
) -> DescribeConfigsResponse:
    """The settings of each resource, with where each value comes from."""
    body: DescribeConfigsRequest = request.body
    results = []
    # Each once: a request names thousands in a few bytes each.
    wanted = {(each.resource_type, each.resource_name): each for each in body.resources}
    async for resource in paced(wanted.values()):
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        with _refusals_in(result):
            result.configs = [
                _trimmed(entry, body)
                for entry in _entries(door, resource)
                if not resource.configuration_keys or entry.name in resource.configuration_keys
            ]
        results.append(result)
    return DescribeConfigsResponse(results=results)


@contextmanager
def _refusals_in(result: DescribeConfigsResult | AlterConfigsResult) -> Iterator[None]:
    """Answers for one resource why it is refused; the others go on."""
    try:
        yield
    except HeadraceError as error:
        result.error_code, result.error_message = ErrorCode.of(error.kafka_code), str(error)


def _entries(door: KafkaDoor, resource: DescribeConfigsResource) -> Iterator[ConfigEntry]:
    catalog = door.broker.catalog
    if resource.resource_type == TOPIC:
        definition = catalog.get(resource.resource_name)
        own, defaults = definition.settings, catalog.inherited(definition)
        return (_of_topic(each, own, defaults) for each in SETTINGS.values())
    if resource.resource_type == BROKER and resource.resource_name in {"", str(NODE_ID)}:
        return (_of_node(each, catalog.defaults) for each in SETTINGS.values())
    raise refused(
        f"settings are a topic's, or those of broker {NODE_ID}; asked for resource "
        f"{shown(resource.resource_name)} of type {resource.resource_type}"
    )


def _of_topic(setting: Setting, own: Mapping[str, Value], defaults: Settings) -> ConfigEntry:
    synonyms = _inherited(setting, defaults)
    if setting.name in own:
        value = str(own[setting.name])
        synonyms.insert(0, ConfigSynonym(name=setting.name, value=value, source=OWN))
    return _entry(setting, setting.name, synonyms)


def _of_node(setting: Setting, defaults: Settings) -> ConfigEntry:
    entry = _entry(setting, setting.broker_name, _inherited(setting, defaults))
    entry.read_only = True
    return entry


def _inherited(setting: Setting, defaults: Settings) -> list[ConfigSynonym]:
    """What holds where a stream says nothing, and what would if the node said nothing."""
    name = setting.broker_name
    synonyms = [ConfigSynonym(name=name, value=str(setting.default), source=DEFAULT)]
    here = defaults.of(setting.name)
    if here != DEFAULTS.of(setting.name):
        synonyms.insert(0, ConfigSynonym(name=name, value=str(here), source=OF_NODE))
    return synonyms


def _entry(setting: Setting, name: str, synonyms: list[ConfigSynonym]) -> ConfigEntry:
    first = synonyms[0]
    return ConfigEntry(
        name=name,
        value=first.value,
        is_default=first.source != OWN,
        config_source=first.source,
        synonyms=synonyms,
        config_type=_TYPES.get(setting.kind, _LIST),
        documentation=setting.summary,
    )


def _trimmed(entry: ConfigEntry, asked: DescribeConfigsRequest) -> ConfigEntry:
    """Without what was not asked for."""
    if not asked.include_synonyms:
        entry.synonyms = []
    if not asked.include_documentation:
        entry.documentation = None
    return entry


async def alter(door: KafkaDoor, _: KafkaConnection, request: Request) -> AlterConfigsResponse:
    """Replaces all settings of each resource: what is not named goes back to its default."""

    def replaced(resource: AlterConfigsResource) -> dict[str, Value | None]:
        return {**dict.fromkeys(SETTINGS), **values_of(resource.configs)}

    return await _alter_each(door, request.body, replaced)


async def alter_incrementally(
    door: KafkaDoor, _: KafkaConnection, request: Request
) -> AlterConfigsResponse:
    """Changes the settings that are named."""

    def changed(resource: IncrementalResource) -> dict[str, Value | None]:
        return _changes(door, resource.resource_name, resource.configs)

    return await _alter_each(door, request.body, changed)


async def _alter_each(
    door: KafkaDoor,
    body: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    changes: Callable[[Any], Mapping[str, Value | None]],
) -> AlterConfigsResponse:
    times = Counter((each.resource_type, each.resource_name) for each in body.resources)
    responses = []
    resources: Iterable[Any] = body.resources
    async for resource in paced(resources):
        result = AlterConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        with _refusals_in(result):
            if times[resource.resource_type, resource.resource_name] > 1:
                raise refused("the request names this resource more than once")
            if resource.resource_type != TOPIC:
                raise refused(
                    "only a topic's settings change here; a node's stand in its configuration file"
                )
            change = Change(settings=changes(resource))
            if body.validate_only:
                door.broker.catalog.alter(resource.resource_name, change)
            else:
                await door.broker.alter_stream(resource.resource_name, change)
        responses.append(result)
    return AlterConfigsResponse(responses=responses)


def _changes(
    door: KafkaDoor, stream: str, configs: Iterable[IncrementalConfig]
) -> dict[str, Value | None]:
    """What a stream's settings become.

    Raises:
        InvalidStreamError: an operation is none; its setting is no list, is named twice, or has no
            value though one is to be set.
    """
    catalog = door.broker.catalog
    changes: dict[str, Value | None] = {}
    for config in configs:
        if config.name in changes:
            raise refused(f"the request names {shown(config.name)} more than once")
        if config.config_operation == DELETE:
            changes[config.name] = None
        elif config.config_operation == SET:
            changes |= values_of([config])
        elif config.config_operation in {APPEND, SUBTRACT}:
            held = catalog.settings(catalog.get(stream))
            changes[config.name] = _listed(config, held)
        else:
            raise refused(f"no operation {config.config_operation}")
    return changes


def _listed(config: IncrementalConfig, held: Settings) -> str:
    """A list after one was appended to it or subtracted from it."""
    try:
        setting = find(config.name)
    except ValueError as error:
        raise InvalidStreamError(str(error)) from None
    if setting.kind is not Kind.CHOICES:
        raise InvalidStreamError(f"setting {shown(config.name)} is no list; set it instead")
    words = str(held.of(config.name)).split(",")
    named = str(values_of([config])[config.name]).split(",")
    if config.config_operation == APPEND:
        return ",".join(words + named)
    return ",".join(word for word in words if word not in named)
