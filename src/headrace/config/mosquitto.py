"""What names of mosquitto.conf are called here, for those who type them by heart.

Source: mosquitto.conf(5). `docs/mosquitto.md` has the same table; a test compares them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS: Final[Mapping[str, str]] = {
    "acl_file": "access.rules",
    "allow_anonymous": "access.anonymous",
    "cafile": "mqtt.tls_client_ca",
    "certfile": "mqtt.tls_certificate",
    "crlfile": "mqtt.tls_client_crl",
    "keyfile": "mqtt.tls_key",
    "listener": "mqtt.bind",
    "log_type": "logging.level",
    "max_connections": "limits.connections",
    "max_inflight_messages": "limits.session_in_flight",
    "max_keepalive": "mqtt.keep_alive_max",
    "max_packet_size": "mqtt.packet_bytes",
    "max_queued_bytes": "limits.session_bytes",
    "max_queued_messages": "limits.session_messages",
    "max_topic_alias": "mqtt.topic_alias_maximum",
    "message_size_limit": "mqtt.packet_bytes",
    "password_file": "access.users",
    "persistence_location": "node.data",
    "persistent_client_expiration": "mqtt.session_expiry_max",
    "port": "mqtt.bind",
    "require_certificate": "mqtt.tls_client_auth",
    "sys_interval": "mqtt.sys_interval",
    "tls_version": "mqtt.tls_version_min",
    "use_identity_as_username": "mqtt.tls_identity",
    "use_subject_as_username": "mqtt.tls_identity",
}
"""Names of theirs, and the setting that has taken their place."""

PAGE: Final = "docs/mosquitto.md"


def hint(name: str) -> str | None:
    """The end of an error about a name that is mosquitto's; None for any other.

    >>> hint("max_queued_messages")
    'what mosquitto calls so is limits.session_messages'
    """
    ours = SETTINGS.get(name)
    return None if ours is None else f"what mosquitto calls so is {ours}"


def is_conf(text: str) -> bool:
    """Whether a file that is no TOML looks like a mosquitto.conf."""
    words = (line.split() for line in text.splitlines())
    return any(line and line[0] in SETTINGS and "=" not in line for line in words)
