"""Settings of listeners: where they are, TLS, WebSocket, and who may speak for others."""

from __future__ import annotations

import ipaddress
from typing import Final, Literal

from pydantic import Field, field_validator, model_validator

from headrace.config.readers import (
    DataPath,
    Door,
    Mode,
    Networks,
    Origins,
    Table,
    UrlPath,
    Words,
)
from headrace.model import Address

MQTT_LISTENERS: Final = ("mqtt", "mqtts", "ws", "wss", "unix")
"""Listeners of the MQTT door, by the scheme of their URLs."""


class TlsSettings(Table):
    """TLS of one door. Files are PEM; SIGHUP has them read again."""

    tls_certificate: DataPath | None = Field(
        default=None, description="Server certificate and its chain, PEM; switches TLS on."
    )
    tls_key: DataPath | None = Field(
        default=None, description="Its key, PEM; in the certificate's file if not set."
    )
    tls_version_min: Literal["1.2", "1.3"] = Field(
        default="1.2", description="Oldest version of TLS."
    )
    tls_client_ca: DataPath | None = Field(
        default=None, description="Authorities of client certificates, PEM; clients then show one."
    )
    tls_client_auth: Literal["require", "optional"] = Field(
        default="require", description="Whether a client must show a certificate, or may."
    )
    tls_client_crl: DataPath | None = Field(
        default=None, description="Revocation lists of those authorities, PEM."
    )

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> TlsSettings:
        for name, needs in (
            ("tls_key", "tls_certificate"),
            ("tls_client_ca", "tls_certificate"),
            ("tls_client_crl", "tls_client_ca"),
        ):
            if getattr(self, name) is not None and getattr(self, needs) is None:
                raise ValueError(f"{name} does nothing without {needs}; set both or neither")
        return self


class ProxySettings(Table):
    """Load balancers that tell the address of their clients."""

    proxy_trusted: Networks = Field(
        default=(ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128")),
        description="Networks that may send PROXY headers.",
    )


class MqttListeners(ProxySettings):
    """Where the MQTT door listens."""

    bind: Door = Field(
        default=Address("127.0.0.1", 1883), description='HOST:PORT; port 0 picks one; "off".'
    )
    tls_bind: Door = Field(
        default=Address("127.0.0.1", 8883), description="MQTT over TLS; with `tls_certificate`."
    )
    ws_bind: Door = Field(default=Address("127.0.0.1", 8083), description="MQTT over WebSocket.")
    wss_bind: Door = Field(
        default=Address("127.0.0.1", 8084),
        description="MQTT over secure WebSocket; with `tls_certificate`.",
    )
    tls_identity: Literal["cn", "san", "subject"] = Field(
        default="cn",
        description="What of a client's certificate names it: `cn`, first `san`, `subject`.",
    )
    unix_path: DataPath | None = Field(default=None, description="File of a Unix socket.")
    unix_mode: Mode = Field(default=0o660, description="Mode of that file.")
    ws_path: UrlPath = Field(default="/mqtt", description="Path of the WebSockets' URL.")
    ws_origins: Origins = Field(
        default=(),
        description="Origins of web pages that may connect, beside the node's own; `*`: all.",
    )
    proxy_protocol: Words = Field(
        default=(),
        description="Listeners that require a PROXY header, v1 or v2: `mqtt`, `mqtts`, `ws`, "
        "`wss`, `unix`.",
    )

    @field_validator("proxy_protocol")
    @classmethod
    def _names_listeners(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in MQTT_LISTENERS:
                raise ValueError(f"must be of {', '.join(MQTT_LISTENERS)}; got {name!r}")
        return names
