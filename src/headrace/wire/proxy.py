"""The PROXY protocol, versions 1 and 2: whom a load balancer speaks for.

Owns one header. Must not know who may send it. Source: HAProxy's `proxy-protocol.txt` (2020),
sections 2.1 and 2.2; clauses are cited by section.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from dataclasses import dataclass
from typing import Final

from headrace import limits
from headrace.errors import MalformedError
from headrace.model import Address

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
"""What version 2 begins with; no other protocol does (2.2)."""

_TEXT_BYTES_MAX: Final = 107
"""Longest header of version 1, with its CRLF (2.1)."""

_TEXT: Final = re.compile(rb"PROXY TCP([46]) ([0-9a-fA-F.:]+) ([0-9a-fA-F.:]+) (\d+) (\d+)\r\n")
_FIXED: Final = struct.Struct(">12sBBH")
_TLV: Final = struct.Struct(">BH")

_ADDRESSES: Final = {0x11: ("!4s4sHH", 4), 0x21: ("!16s16sHH", 16), 0x31: ("!108s108s", 0)}
"""Of TCP over IPv4, over IPv6, and of a Unix stream (2.2)."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A whole header.

    Attributes:
        size_bytes: what it takes; what follows is the client's.
        source: the client; None where the proxy speaks for itself, as health checks do, or for a
            client without an address.
        destination: what the client reached, where there is a source.
    """

    size_bytes: int
    source: Address | None = None
    destination: Address | None = None


def read_header(data: bytes) -> ProxyHeader | None:
    """The header at the front of `data`, or None while it is not whole.

    Raises:
        MalformedError: there is none, or a broken one.
    """
    if data.startswith(SIGNATURE):
        return _binary(data)
    if data.startswith(b"PROXY "):
        return _text(data)
    if SIGNATURE.startswith(data) or b"PROXY ".startswith(data):
        return None
    raise MalformedError(f"no PROXY header; it begins with {data[:12]!r}")


def _text(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, _TEXT_BYTES_MAX)
    if end < 0:
        if len(data) >= _TEXT_BYTES_MAX:
            raise MalformedError(f"a PROXY line without an end in {_TEXT_BYTES_MAX} bytes")
        return None
    line = data[: end + 2]
    if line.startswith((b"PROXY UNKNOWN ", b"PROXY UNKNOWN\r")):
        return ProxyHeader(len(line))  # "the receiver must ignore anything presented" (2.1)
    match = _TEXT.fullmatch(line)
    if match is None:
        raise MalformedError(f"a PROXY line that is none: {line!r}")
    version, *hosts = match[1], match[2], match[3]
    read = ipaddress.IPv4Address if version == b"4" else ipaddress.IPv6Address
    try:
        source, destination = (
            Address(str(read(host.decode())), _port(port))
            for host, port in zip(hosts, (match[4], match[5]), strict=True)
        )
    except ValueError as error:
        raise MalformedError(f"a PROXY line with a wrong address: {error}") from None
    return ProxyHeader(len(line), source, destination)


def _port(digits: bytes) -> int:
    if len(digits) > 5 or int(digits) > 65_535 or (len(digits) > 1 and digits[:1] == b"0"):
        raise ValueError(f"{digits!r} is no port")
    return int(digits)


def _binary(data: bytes) -> ProxyHeader | None:
    if len(data) < _FIXED.size:
        return None
    _, version_command, family, length = _FIXED.unpack_from(data)
    if version_command not in {0x20, 0x21}:  # LOCAL and PROXY of version 2
        raise MalformedError(f"a PROXY header of an unknown version or command, {version_command}")
    size = _FIXED.size + length
    if size > limits.PROXY_HEADER_BYTES_MAX:
        raise MalformedError(f"a PROXY header of {size} bytes")
    if len(data) < size:
        return None
    local = version_command == 0x20 or family >> 4 == 0
    if local:  # its addresses say nothing, and may be anything (2.2)
        return ProxyHeader(size)
    if family not in _ADDRESSES:
        raise MalformedError(f"a PROXY header of family {family:#x}, which is no stream")
    layout, host_bytes = _ADDRESSES[family]
    if length < struct.calcsize(layout):
        raise MalformedError(f"a PROXY header that is too short for family {family:#x}")
    _check_extensions(data[_FIXED.size + struct.calcsize(layout) : size])
    if not host_bytes:  # the peer of a Unix socket has no address
        return ProxyHeader(size)
    source, destination, source_port, destination_port = struct.unpack_from(
        layout, data, _FIXED.size
    )
    return ProxyHeader(
        size,
        Address(str(ipaddress.ip_address(source)), source_port),
        Address(str(ipaddress.ip_address(destination)), destination_port),
    )


def _check_extensions(data: bytes) -> None:
    """Type, length and value after the addresses: none is used, each must be whole."""
    at = 0
    while at < len(data):
        if len(data) - at < _TLV.size:
            raise MalformedError("a PROXY header with a cut-off extension")
        at += _TLV.size + _TLV.unpack_from(data, at)[1]
    if at != len(data):
        raise MalformedError("a PROXY header with an extension beyond its end")
