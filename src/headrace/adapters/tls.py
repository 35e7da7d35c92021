"""TLS: contexts out of files, made anew on request, and the layer that uses them.

Owns certificates and handshakes. Must not know what TLS carries. Invariants: a connection keeps
the context that it began with; files that cannot be used leave the context that was there; a
connection holds no more than a record of either direction beside what OpenSSL does.
"""

from __future__ import annotations

import contextlib
import logging
import re
import ssl
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace import limits
from headrace.adapters.layers import Layer
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.adapters.layers import Inner, LowerLink, MakeLayer
    from headrace.config import TlsSettings

log = logging.getLogger(__name__)

HANDSHAKE_RECORD: Final = 0x16
"""What a TLS client begins with (RFC 8446 5.1)."""

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CERTIFICATE: Final = re.compile(r"-----BEGIN (?:TRUSTED )?CERTIFICATE-----")
_KEY: Final = re.compile(r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----")
_ENCRYPTED: Final = re.compile(r"-----BEGIN ENCRYPTED PRIVATE KEY-----|\nProc-Type: 4,ENCRYPTED")
_REVOCATIONS: Final = re.compile(r"-----BEGIN X509 CRL-----")

_NAMES: Final = {
    "commonName": "CN", "countryName": "C", "localityName": "L", "stateOrProvinceName": "ST",
    "organizationName": "O", "organizationalUnitName": "OU", "streetAddress": "STREET",
    "domainComponent": "DC", "userId": "UID",
}  # fmt: skip
"""Short names of the parts of a subject (RFC 4514 3)."""


class Certificates:
    """The certificates of one door.

    Attributes:
        context: for new connections.
        expires_at: Unix time at which its certificate does; None where it cannot be told, as of
            one that has expired.
    """

    def __init__(self, table: str, settings: TlsSettings, names_by: str = "cn") -> None:
        """Reads the files that `settings`, of the table `table`, name.

        `names_by` is what of a client's certificate names it: `cn`, `san` or `subject`.

        Raises:
            ConfigError: one of them cannot be used; the message names the setting.
        """
        self._table = table
        self._settings = settings
        self._names_by = names_by
        self.context = _make_context(table, settings)
        self.expires_at = self._look_at_expiry()

    def reload(self) -> None:
        """Reads the files again, for connections from now on."""
        try:
            self.context = _make_context(self._table, self._settings)
        except ConfigError as error:
            log.error("the certificates of before stay in use: %s", error)  # noqa: TRY400 - a line
        else:
            log.info("certificates of [%s] were read again", self._table)
            self.expires_at = self._look_at_expiry()

    def _look_at_expiry(self) -> float | None:
        file = self._settings.tls_certificate
        try:
            expires_at = _expiry(self.context, file)
        except ssl.SSLError as error:  # OpenSSL's own check says it best
            log.warning("[%s] clients may refuse %s: %s", self._table, file, _reason(error))
            return None
        left_days = (expires_at - time.time()) / 86_400
        if left_days < limits.CERTIFICATE_WARN_DAYS:
            log.warning("[%s] %s expires in %.1f days; renew it", self._table, file, left_days)
        return expires_at

    def identity(self, certificate: dict[str, Any]) -> str | None:
        """Whom a client's certificate names; None where it names nobody."""
        return identity(certificate, self._names_by)


def _make_context(table: str, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.tls_version_min]
    context.options |= ssl.OP_NO_RENEGOTIATION
    certificate = settings.tls_certificate
    assert certificate is not None, "there is no TLS without one"
    where = f"[{table}] tls_certificate"
    _read_pem(where, certificate, _CERTIFICATE, "certificate")
    if settings.tls_key is not None:
        where = f"[{table}] tls_key"
    key = settings.tls_key or certificate
    if _ENCRYPTED.search(_read_pem(where, key, None, "private key")):
        raise ConfigError(
            f"{where}: {key} is encrypted; store it in plain text, readable for the node alone"
        )
    _read_pem(where, key, _KEY, "private key")
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"{key} is not the key of the certificate in {certificate}; name both of one pair"
        else:
            why = f"{certificate} and {key} cannot be used: {_reason(error)}; are they whole?"
        raise ConfigError(f"{where}: {why}") from None
    if settings.tls_client_ca is not None:
        _verify_clients(context, table, settings)
    return context


def _expiry(context: ssl.SSLContext, certificate: Path | None) -> float:
    """When the certificate of `context` expires, as a client learns it that trusts it as it is.

    Raises:
        SSLError: such a client would not take it.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    answering = context.wrap_bio(to_server, to_client, server_side=True)
    for each in (asking, answering):  # the client's hello, and all that the server has to say
        with contextlib.suppress(ssl.SSLWantReadError):
            each.do_handshake()
    asking.do_handshake()
    learned = asking.getpeercert()
    assert learned, "what was verified is known"
    return ssl.cert_time_to_seconds(str(learned["notAfter"]))


def _verify_clients(context: ssl.SSLContext, table: str, settings: TlsSettings) -> None:
    required = settings.tls_client_auth == "require"
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    files = [("tls_client_ca", settings.tls_client_ca, _CERTIFICATE, "certificate")]
    if settings.tls_client_crl is not None:
        files.append(("tls_client_crl", settings.tls_client_crl, _REVOCATIONS, "revocation list"))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    for name, file, mark, kind in files:
        assert file is not None
        where = f"[{table}] {name}"
        _read_pem(where, file, mark, kind)
        try:
            context.load_verify_locations(file)
        except ssl.SSLError as error:
            raise ConfigError(f"{where}: {file} cannot be used: {_reason(error)}") from None


def _read_pem(where: str, file: Path, mark: re.Pattern[str] | None, kind: str) -> str:
    try:
        with file.open("rb") as stream:
            text = stream.read(limits.CONFIG_BYTES_MAX).decode("ascii", "replace")
    except OSError as error:
        raise ConfigError(f"{where}: {file} cannot be read: {error.strerror}") from None
    if mark is not None and not mark.search(text):
        raise ConfigError(f"{where}: {file} holds no {kind} in PEM format")
    return text


def _reason(error: ssl.SSLError) -> str:
    """What OpenSSL says, as a person would."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or str(error)).replace("_", " ").lower()


def identity(certificate: dict[str, Any], part: str) -> str | None:
    """The `cn`, the first `san` or the whole `subject` of what `SSLObject.getpeercert` gives."""
    if part == "san":
        names = certificate.get("subjectAltName", ())
        return next((name for kind, name in names if kind in {"DNS", "email", "URI"}), None)
    parts = [pair for several in certificate.get("subject", ()) for pair in several]
    if part == "cn":
        return next((value for name, value in reversed(parts) if name == "commonName"), None)
    written = (f"{_NAMES.get(name, name)}={_escaped(value)}" for name, value in reversed(parts))
    return ",".join(written) or None


def _escaped(value: str) -> str:
    """A value of a subject, in which a comma is no end (RFC 4514 2.4)."""
    escaped = re.sub(r'([,+"\\<>;=])', r"\\\1", value).replace("\0", r"\00")
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    return escaped[:-1] + r"\ " if escaped.endswith(" ") and len(value) > 1 else escaped


class TlsLayer(Layer):
    """One connection's TLS."""

    __slots__ = (
        "_certificates", "_closing", "_ended", "_identity", "_incoming", "_outgoing", "_tls",
    )  # fmt: skip

    def __init__(self, below: LowerLink, inner: Inner, certificates: Certificates) -> None:
        super().__init__(below, inner)
        self._certificates = certificates
        self._closing = False
        self._ended = False
        self._identity: str | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None

    @property
    def identity(self) -> str | None:
        """Whom the certificate of the other end names."""
        return self._identity

    @property
    def secure(self) -> bool:
        """It is encrypted."""
        return True

    def received(self, data: bytes) -> None:
        """Records came in."""
        if self._tls is None:
            if data[0] != HANDSHAKE_RECORD:
                self._below.refuse("no_tls", "it does not speak TLS, and this port does")
                return
            self._tls = self._certificates.context.wrap_bio(
                self._incoming, self._outgoing, server_side=True
            )
        try:
            opened = self._opened(data, self._tls)
        except ssl.SSLError as error:
            self._closing = True
            self._flush()  # the alert
            done = "TLS record" if self._above else "TLS handshake"
            self._below.refuse(done.lower().replace(" ", "_"), f"{done} failed: {_reason(error)}")
            return
        self._flush()
        if opened and self._above is not None:
            self._above.received(opened)
        if self._ended:
            self.close()

    def _opened(self, data: bytes, tls: ssl.SSLObject) -> bytes:
        """What `data` brings, deciphered, as one piece."""
        pieces: list[bytes] = []
        view = memoryview(data)
        for at in range(0, len(data), limits.TLS_PIECE_BYTES):
            self._incoming.write(view[at : at + limits.TLS_PIECE_BYTES])
            try:
                if self._above is None:
                    tls.do_handshake()
                    self._shaken(tls)
                while piece := tls.read(limits.TLS_PIECE_BYTES):
                    pieces.append(piece)
            except ssl.SSLWantReadError:
                continue
            self._ended = True  # the other end has said goodbye
            break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _shaken(self, tls: ssl.SSLObject) -> None:
        certificate = tls.getpeercert()
        if certificate:
            self._identity = self._certificates.identity(certificate)
        self._flush()
        self._pass()

    def write(self, data: bytes) -> None:
        """Enciphers and queues bytes."""
        self.write_all([data])

    def write_all(self, pieces: Sequence[bytes]) -> None:
        """Enciphers and queues bytes that come in pieces."""
        assert self._tls is not None, "nobody writes before the handshake"
        if self._closing:
            return
        sealed: list[bytes] = []
        for piece in pieces:
            view = memoryview(piece)
            for at in range(0, len(view), limits.TLS_PIECE_BYTES):
                self._tls.write(view[at : at + limits.TLS_PIECE_BYTES])
                sealed.append(self._outgoing.read())
        self._below.write_all(sealed)

    def close(self) -> None:
        """Says goodbye, and ends the connection."""
        if self._tls is not None and not self._closing:
            self._closing = True
            with contextlib.suppress(ssl.SSLError):  # the other end has not said it yet
                self._tls.unwrap()
            self._flush()
        self._below.close()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._below.write(self._outgoing.read())


def tls(certificates: Certificates) -> MakeLayer:
    """Makes such layers."""
    return partial(TlsLayer, certificates=certificates)
