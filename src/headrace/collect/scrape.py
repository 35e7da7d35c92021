"""One page of metrics over HTTP: asked for as Prometheus does, bounded in time and size.

Owns requests, credentials and encodings. What a page says is for `exposition`; how often it is
asked for, and what is said of failures, for `exporter`. Credentials are read from their files for
each request, for they are replaced while a collector runs.
"""

from __future__ import annotations

import base64
import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import aiohttp
from yarl import URL

from headrace import __version__, job_limits
from headrace.errors import ScrapeError

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

_ACCEPT: Final = "text/plain;version=0.0.4;q=1,*/*;q=0.1"
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_GZIP_MAGIC: Final = b"\x1f\x8b"
_READ_BYTES: Final = 65_536
_CREDENTIAL_BYTES_MAX: Final = 65_536
_ANY_WRAPPER: Final = 32 + zlib.MAX_WBITS
"""zlib's window size for gzip and zlib alike, told by what the data begins with."""


class Target(NamedTuple):
    """An exporter: where its page is, and how its samples name it."""

    url: URL
    instance: str
    """`host:port`, as Prometheus labels it."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Of `http://node:9400/metrics`; without a scheme it is http, without a path /metrics.

        Raises:
            ValueError: it is no such URL; the message says what is expected.
        """
        wanted = "must be a URL such as http://node-1:9400/metrics"
        try:
            url = URL(text if "://" in text else f"http://{text}")
            port = url.port
        except ValueError:
            url, port = URL(), None
        if url.scheme not in {"http", "https"} or not url.host or not port:
            raise ValueError(f"{wanted}; got {text[:200]!r}")
        if url.user is not None or url.password is not None:
            raise ValueError(
                "a user and password in a URL can be seen by everybody on this machine; "
                "give --exporter-user and --exporter-password-file"
            )
        if url.path in {"", "/"}:
            url = url.with_path("/metrics").with_query(url.query)
        return cls(url.with_fragment(None), f"{url.host_subcomponent}:{port}")


@dataclass(frozen=True, slots=True)
class Access:
    """How exporters let the collector in.

    Attributes:
        user: name of basic authentication, with the file that holds its password.
        password_file: see `user`.
        token_file: of a bearer token.
        tls: what to trust; None is what the system does.
    """

    user: str | None = None
    password_file: Path | None = None
    token_file: Path | None = None
    tls: ssl.SSLContext | None = None

    def header(self) -> str | None:
        """Value of `Authorization`, from the files as they are now.

        Raises:
            ScrapeError: one cannot be read.
        """
        if self.token_file is not None:
            return f"Bearer {_secret(self.token_file)}"
        if self.user is not None and self.password_file is not None:
            pair = f"{self.user}:{_secret(self.password_file)}"
            return f"Basic {base64.b64encode(pair.encode()).decode()}"
        return None


def _secret(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            text = stream.read(_CREDENTIAL_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as fault:
        what = getattr(fault, "strerror", None) or "is no UTF-8"
        raise ScrapeError(f"{file}: {what}", reason="credentials") from None
    if not text or not text.isprintable():
        raise ScrapeError(f"{file}: must hold one line with the secret", reason="credentials")
    return text


class Scraper:
    """Asks for pages; close it with the loop that it is used on.

    Args:
        access: how exporters let it in.
        timeout_s: for a page, from the connection to its last byte.
    """

    def __init__(self, access: Access, timeout_s: float) -> None:
        self._access = access
        self._timeout_s = timeout_s
        self._session = aiohttp.ClientSession(
            # The bound on how many are asked at a time is the caller's: time in a queue for a
            # connection would count as the exporter's.
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            headers={
                "Accept": _ACCEPT,
                "Accept-Encoding": "gzip",
                "User-Agent": f"headrace/{__version__}",
                "X-Prometheus-Scrape-Timeout-Seconds": f"{timeout_s:g}",
            },
            auto_decompress=False,  # it unpacks without a bound
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """Ends its connections."""
        await self._session.close()

    async def page(self, target: Target) -> str:
        """The text of a page.

        Raises:
            ScrapeError: there is none; the message says why and what to do.
        """
        try:
            return await self._followed(target.url)
        except TimeoutError:
            raise ScrapeError(
                f"no whole page within {self._timeout_s:g} s; the exporter is slow or hangs: "
                "look at it, or raise --timeout",
                reason="timeout",
            ) from None
        except aiohttp.ClientConnectorCertificateError as fault:
            error = fault.certificate_error
            why = getattr(error, "verify_message", None) or str(error)
            raise ScrapeError(
                f"its certificate is not trusted ({why}); name its authority: --exporter-cafile",
                reason="tls",
            ) from None
        except aiohttp.ClientSSLError as fault:
            raise ScrapeError(
                f"no TLS connection ({_why(fault)}); is it https?", reason="tls"
            ) from None
        except aiohttp.ClientConnectorError as fault:
            raise ScrapeError(
                f"cannot be reached ({_why(fault)}); is the exporter running?", reason="unreachable"
            ) from None
        except aiohttp.ClientPayloadError:
            raise ScrapeError(
                "the page ends too soon; the exporter broke off", reason="cut"
            ) from None
        except aiohttp.ClientResponseError as fault:  # of bytes that are no HTTP
            raise ScrapeError(
                f"answers with something that is no HTTP ({fault.message[:100]!r})",
                reason="not_http",
            ) from None
        except (aiohttp.ClientError, OSError) as fault:
            raise ScrapeError(
                f"the connection broke ({_why(fault)})", reason="unreachable"
            ) from None

    async def _followed(self, url: URL) -> str:
        """The page at `url`, or where that exporter says that it is."""
        header = self._access.header()
        headers = {} if header is None else {"Authorization": header}
        for _ in range(job_limits.EXPORTER_REDIRECTS_MAX + 1):
            async with self._session.get(
                url, headers=headers, ssl=self._access.tls or True, allow_redirects=False
            ) as answer:
                if answer.status == 200:
                    encoding = answer.headers.get("Content-Encoding", "").strip().lower()
                    return unpacked(await _body(answer), encoding).decode(
                        "utf-8", errors="backslashreplace"
                    )
                if answer.status not in _REDIRECTS:
                    raise ScrapeError(_refusal(answer), reason="http_status")
                url = _onward(url, answer.headers.get("Location", ""))
        raise ScrapeError("leads from one path to another without an end", reason="redirect")


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_chunked(_READ_BYTES):
        body += chunk
        if len(body) > job_limits.EXPORTER_PAGE_BYTES_MAX:
            raise _too_large()
    return bytes(body)


def unpacked(body: bytes, encoding: str) -> bytes:
    """The page in `body`, which is gzip by its header, by its first bytes, or not at all.

    Raises:
        ScrapeError: it is damaged, larger than `job_limits.EXPORTER_PAGE_BYTES_MAX` unpacked, or
            in an encoding that was not asked for.
    """
    if encoding not in {"", "identity", "gzip", "x-gzip", "deflate"}:
        raise ScrapeError(f"the page is packed as {encoding[:40]!r}, unasked", reason="encoding")
    if encoding in {"", "identity"} and not body.startswith(_GZIP_MAGIC):
        return body
    unpacker = zlib.decompressobj(_ANY_WRAPPER)
    try:
        page = unpacker.decompress(body, job_limits.EXPORTER_PAGE_BYTES_MAX + 1)
    except zlib.error as fault:
        raise ScrapeError(f"the page is damaged gzip ({fault})", reason="encoding") from None
    if len(page) > job_limits.EXPORTER_PAGE_BYTES_MAX:
        raise _too_large()
    if not unpacker.eof:
        raise ScrapeError("the packed page ends too soon; the exporter broke off", reason="cut")
    return page


def _too_large() -> ScrapeError:
    size = job_limits.EXPORTER_PAGE_BYTES_MAX >> 20
    return ScrapeError(
        f"the page is larger than {size} MiB; ask for less of it", reason="too_large"
    )


def _refusal(answer: aiohttp.ClientResponse) -> str:
    remedy = {
        401: "; give --exporter-token-file, or --exporter-user and --exporter-password-file",
        403: "; this user or token may not read it",
        404: "; the page is usually at /metrics",
    }.get(answer.status, "")
    return f"answers {answer.status} {(answer.reason or '')[:60]}".rstrip() + remedy


def _onward(url: URL, location: str) -> URL:
    """Where a redirect leads, if that is the same exporter."""
    try:
        onward = url.join(URL(location))
        same = (onward.scheme, onward.host, onward.port) == (url.scheme, url.host, url.port)
    except ValueError:
        onward, same = url, False
    if not location or not same:
        raise ScrapeError(
            f"leads to {location[:200]!r}, which is not followed; collect from that URL, if it "
            "is the one that you mean",
            reason="redirect",
        )
    return onward


def _why(fault: Exception) -> str:
    """The system's words, where it has any."""
    cause = getattr(fault, "os_error", None) or fault
    code = getattr(cause, "errno", None)
    if code is not None and code > 0:  # asyncio puts words of its own into `strerror`
        return os.strerror(code)
    return getattr(cause, "strerror", None) or str(cause) or type(fault).__name__
