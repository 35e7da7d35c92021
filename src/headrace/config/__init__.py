"""Typed settings: defaults, then a TOML file, then the environment, then the command line.

Every setting that is accepted takes effect. An unknown one is an error that names the nearest
known one and where it was read.
"""

from headrace.config.access import AccessRule, AccessSettings
from headrace.config.doors import MQTT_LISTENERS, TlsSettings
from headrace.config.load import Sources, explain, load, read
from headrace.config.pipeline import PipelineSettings
from headrace.config.schema import (
    Config,
    HttpSettings,
    KafkaSettings,
    LimitSettings,
    LoggingSettings,
    LogSettings,
    MqttSettings,
    NodeSettings,
)
from headrace.config.streams import QueueTable, StreamSettings

__all__ = [
    "MQTT_LISTENERS",
    "AccessRule",
    "AccessSettings",
    "Config",
    "HttpSettings",
    "KafkaSettings",
    "LimitSettings",
    "LogSettings",
    "LoggingSettings",
    "MqttSettings",
    "NodeSettings",
    "PipelineSettings",
    "QueueTable",
    "Sources",
    "StreamSettings",
    "TlsSettings",
    "explain",
    "load",
    "read",
]
