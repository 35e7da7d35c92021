"""Clients of a headrace broker, for Python programs."""

from headrace.client.errors import (
    ClientError,
    ConnectionLostError,
    DeadlineError,
    OffsetOutOfRangeError,
    RequestError,
    UnknownStreamError,
)
from headrace.client.fetch import FetchClient
from headrace.client.login import Login

__all__ = [
    "ClientError",
    "ConnectionLostError",
    "DeadlineError",
    "FetchClient",
    "Login",
    "OffsetOutOfRangeError",
    "RequestError",
    "UnknownStreamError",
]
