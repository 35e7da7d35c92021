"""What commands share that manage a running node: `--url`, as whom, `--json`, one HTTP call."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from headrace.cli.login import login
from headrace.cli.paths import NamedPath
from headrace.client.login import Login
from headrace.client.tls import why_no_tls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TIMEOUT_SECONDS: Final = 60.0
"""For one call: creating many partitions takes seconds on a slow disk."""

PAGE: Final = 1_000
"""What one answer lists at most, `limits.HTTP_PAGE_MAX` of the node."""

_OTHER: Final = "what listens there is something else"

_LOGIN: Final = "headrace.login"
"""Where a command's context keeps what its options say of user and password."""


_KNOWN: Final = "headrace.known"
"""Where it keeps passwords that it has read: a file may be one that is read once."""


def _note(context: click.Context, option: click.Parameter, value: object) -> None:
    name = option.human_readable_name
    given = context.meta.setdefault(_LOGIN, {})
    given[name] = value
    given[f"{name} typed"] = context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def reach(file_option: str) -> Callable[..., Callable[..., None]]:
    """Options of a command that calls a node: where it is, and as whom to call it."""
    options = [
        click.option(
            "--url",
            envvar="HEADRACE_URL",
            default="http://127.0.0.1:8080",
            show_default=True,
            help="HTTP door of the node; also HEADRACE_URL.",
        ),
        click.option(
            "--user",
            "login_user",
            envvar="HEADRACE_USER",
            expose_value=False,
            callback=_note,
            help="User to call it as; also HEADRACE_USER, or http://USER@HOST:PORT.",
        ),
        click.option(
            file_option,
            "login_file",
            type=NamedPath(),
            metavar="FILE",
            expose_value=False,
            callback=_note,
            help="Its first line is that user's password; else HEADRACE_PASSWORD, or asked for.",
        ),
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


url_option = reach("--password-file")
json_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object."
)


class NotFound(click.ClickException):
    """The node has nothing of that name."""


def call(url: str, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The node's answer to one request.

    Raises:
        UsageError: the request is wrong.
        NotFound: what it names is not there.
        ClickException: the node refused it, or is not there.
    """
    with _answered(url, method, path, body) as response:
        answer = json.load(response)
    if not isinstance(answer, dict):
        raise _no_node(url, _OTHER)
    return answer


def stream(url: str, path: str) -> Iterator[str]:
    """The lines of an answer that goes on, as they come; empty ones are left out.

    Raises:
        UsageError, ClickException: as `call`; where the node goes away, too.
    """
    with _answered(url, "GET", path) as response:
        for line in response:
            if text := line.decode().strip():
                yield text


@contextmanager
def _answered(
    url: str, method: str, path: str, body: dict[str, Any] | None = None
) -> Iterator[http.client.HTTPResponse]:
    """The answer to one request, to be read within the context.

    Raises:
        UsageError, NotFound, ClickException: as `call`.
    """
    url, who = caller(url)
    _check(url)
    has_begun = False
    try:
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            url.rstrip("/") + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"} | _header(who),
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
            has_begun = True
            yield response
    except urllib.error.HTTPError as error:
        detail = _detail(error)
        if error.code == http.client.UNAUTHORIZED and who is not None:
            detail += f" (user {who.user})"
        kinds = {400: _wrong, 404: NotFound}
        raise kinds.get(error.code, click.ClickException)(detail) from None
    except (http.client.HTTPException, OSError) as error:
        if has_begun:
            raise click.ClickException(f"the node at {url} went away") from None
        raise _unanswered(url, getattr(error, "reason", error)) from None
    except ValueError:
        raise _no_node(url, _OTHER) from None


def named(path: str, name: str) -> str:
    """Where something of that name is, below `path`.

    Raises:
        UsageError: the name is empty, as of a variable of the shell that is not set.
    """
    if not name:
        raise click.UsageError("the name is empty")
    return f"{path}/{urllib.parse.quote(name, safe='')}"


def pages(url: str, path: str, items: str, limit: int) -> tuple[list[Any], bool]:
    """The first `limit` of what a node lists page by page, and whether that is all.

    Raises:
        UsageError, ClickException: as `call`.
    """
    found: list[Any] = []
    start: object = None
    while True:
        page = f"&limit={min(limit - len(found), PAGE)}"
        if start is not None:
            page += "&" + urllib.parse.urlencode({"start": start})
        answer = call(url, "GET", path + page)
        found += answer[items]
        start = answer["next"]
        if start is None or len(found) >= limit:
            return found, start is None


def caller(url: str) -> tuple[str, Login | None]:
    """The URL without a user name, and whom a command acts for, by that or its options.

    An option on the command line comes before the URL, and that before HEADRACE_USER.

    Raises:
        UsageError: there is no password for the user.
        InputError: its file cannot be read.
    """
    meta = click.get_current_context().meta
    given = meta.get(_LOGIN, {})
    user: str | None = given.get("login_user")
    file: Path | None = given.get("login_file")
    secret: str | None = None
    scheme, _, rest = url.partition("://")
    who, at, place = rest.partition("@")
    if at and "/" not in who:
        url = f"{scheme}://{place}"
        name, colon, word = (urllib.parse.unquote(part) for part in who.partition(":"))
        if user == name or not given.get("login_user typed"):
            user = name
            secret = word if colon else None
    if user is not None and secret is not None:
        return url, Login(user, secret)
    known = meta.setdefault(_KNOWN, {})
    if (user, file) not in known:
        known[user, file] = login(user, file)
    return url, known[user, file]


def _header(who: Login | None) -> dict[str, str]:
    """What carries a user's name and password."""
    if who is None:
        return {}
    encoded = base64.b64encode(f"{who.user}:{who.password}".encode()).decode()
    return {"Authorization": f"Basic {encoded}"}


def _check(url: str) -> None:
    """Refuses what is no URL of a node.

    Raises:
        UsageError: it is none.
    """
    if not url.startswith(("http://", "https://")):
        raise _wrong(f"--url must begin with http:// or https://; got {url!r}")
    try:
        parts = urllib.parse.urlsplit(url)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError as error:
        raise _wrong(f"--url {url}: {str(error)[:1].lower()}{str(error)[1:]}") from None
    if not has_host or not url.isprintable() or " " in url:
        raise _wrong(f"--url takes http://HOST:PORT; got {url!r}")


def _unanswered(url: str, reason: object) -> click.ClickException:
    """What there is at `url` where no answer came."""
    if isinstance(reason, ssl.SSLError):
        why = why_no_tls(reason, "name its authority in SSL_CERT_FILE", "try http://, or its port")
        return click.ClickException(f"{url}: {why}")
    if isinstance(reason, (http.client.HTTPException, ConnectionResetError)):
        return click.ClickException(
            f"what listens at {url} speaks no {url.partition(':')[0].upper()}\n"
            f"is that the HTTP door of a node, and does it take http:// or https://?"
        )
    return _no_node(url, getattr(reason, "strerror", None) or reason)


def _no_node(url: str, reason: object) -> click.ClickException:
    return click.ClickException(
        f"no node answers at {url}: {reason}\n"
        f"start one with: headrace serve\n"
        f"or name another with --url or HEADRACE_URL"
    )


def _wrong(message: str) -> click.UsageError:
    return click.UsageError(message, click.get_current_context())


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"the node answered {error.code} {error.reason}"
