"""`headrace collect exporter`: pages of dcgm-exporter to a broker, round after round."""

from __future__ import annotations

import hashlib
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final

import click

from headrace import job_limits
from headrace.cli.collect.live import SECONDS, Live, live_options
from headrace.cli.paths import NamedPath
from headrace.errors import InputError, ScrapeError
from headrace.text import counted

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.cli.collect.live import Say
    from headrace.collect.feed import Feed
    from headrace.collect.scrape import Access, Target

_TIMEOUT_S: Final = 10.0


@click.command("exporter", short_help="Publish the metrics of dcgm-exporter.")
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@live_options
@click.option(
    "--timeout",
    "timeout_s",
    type=SECONDS,
    help="Of one page.  [10s, or the interval where that is shorter]",
)
@click.option("--exporter-user", metavar="NAME", help="User of basic authentication.")
@click.option(
    "--exporter-password-file", type=NamedPath(), metavar="FILE", help="Holds its password."
)
@click.option(
    "--exporter-token-file", type=NamedPath(), metavar="FILE", help="Holds a bearer token."
)
@click.option(
    "--exporter-cafile", type=NamedPath(), metavar="FILE", help="Authorities to trust (PEM)."
)
def exporter(
    *,
    urls: tuple[str, ...],
    timeout_s: float | None,
    exporter_user: str | None,
    exporter_password_file: Path | None,
    exporter_token_file: Path | None,
    exporter_cafile: Path | None,
    **live: Any,  # noqa: ANN401 - the members of Live, typed there
) -> None:
    """Publish what dcgm-exporters say of their GPUs, at each URL, until a signal.

    A URL without a scheme is http, one without a path /metrics. Pages of every dcgm-exporter are
    read, and Prometheus' federation of them. Each value is published as the text that it was, with
    the sample's own timestamp where it has one, else the time of the scrape. A line that is no
    sample is published as it is, for the quarantine; samples that are no GPU's are left out.

    An exporter that fails, hangs, stands still or serves no GPU is said once when that begins, and
    once when it ends, and is asked on. While the broker is away, what is read waits in memory, up
    to 64 MiB. Redirects are followed to the same host and port only. Files of passwords and tokens
    are read for each scrape. A signal ends the rounds, waits for what is out, and exits with 0.

    \b
    Examples:
      headrace collect exporter http://127.0.0.1:9400/metrics
      headrace collect exporter node-1:9400 node-2:9400 --interval 30s --wide
      headrace collect exporter https://node-1:9400 --exporter-cafile ca.pem \\
        --exporter-token-file /run/secrets/token
      headrace collect exporter node-1:9400 --once --json
    """
    from headrace.collect.exporter import Exporters  # noqa: PLC0415 - aiohttp is slow to import
    from headrace.collect.scrape import Scraper  # noqa: PLC0415

    settings = Live(**live)
    targets = _targets(urls)
    access = _access(exporter_user, exporter_password_file, exporter_token_file, exporter_cafile)
    timeout_s = _timeout(timeout_s, settings)
    running: list[Exporters] = []

    async def work(feed: Feed, say: Say) -> None:
        scraper = Scraper(access, timeout_s)
        interval_s = None if settings.once else settings.interval_s
        exporters = Exporters(targets, scraper, feed, interval_s=interval_s, say=say)
        running.append(exporters)
        try:
            await exporters.run()
        finally:
            await scraper.close()

    def summary() -> tuple[str, dict[str, Any]]:
        counts = running[0].counts
        note = f"{counted(counts['scrapes'], 'page')}" + (
            f", {counts['failed']:,} failed" if counts["failed"] else ""
        )
        return note, {"scrapes": _as_json(counts)}

    settings.run(_default_source(targets), work, summary)
    failed = running[0].counts["failed"]
    if settings.once and failed:
        raise click.ClickException(f"{counted(failed, 'exporter')} of {len(targets)} gave no page")


def _as_json(counts: Counter[str]) -> dict[str, Any]:
    prefix = "failed_"
    reasons = {
        name.removeprefix(prefix): count
        for name, count in sorted(counts.items())
        if name.startswith(prefix)
    }
    names = ("scrapes", "failed", "skipped", "unparsed", "left_out")
    return {"pages" if name == "scrapes" else name: counts[name] for name in names} | {
        "failed_by_reason": reasons
    }


def _targets(urls: Sequence[str]) -> list[Target]:
    from headrace.collect.scrape import Target  # noqa: PLC0415

    if len(urls) > job_limits.EXPORTER_URLS_MAX:
        raise click.UsageError(
            f"{len(urls)} URLs are more than the {job_limits.EXPORTER_URLS_MAX} that one collector "
            "asks; start another for the rest"
        )
    try:
        targets = [Target.parse(url) for url in urls]
    except ValueError as fault:
        raise click.BadParameter(str(fault), param_hint="URL") from None
    seen: set[Target] = set()
    for target in targets:
        if target in seen:
            raise click.BadParameter(f"{target.url} is given twice", param_hint="URL")
        seen.add(target)
    return targets


def _access(
    user: str | None, password_file: Path | None, token_file: Path | None, cafile: Path | None
) -> Access:
    from headrace.collect.scrape import Access  # noqa: PLC0415

    if (user is None) != (password_file is None):
        raise click.UsageError(
            "--exporter-user and --exporter-password-file belong together; give both"
        )
    if user is not None and token_file is not None:
        raise click.UsageError("an exporter asks for a user or for a token; give one of them")
    if user is not None and ":" in user:
        raise click.BadParameter("has a colon, which ends a name", param_hint="--exporter-user")
    tls = None
    if cafile is not None:
        try:
            tls = ssl.create_default_context(cafile=cafile)
        except (ssl.SSLError, OSError) as fault:
            why = fault.strerror or "holds no certificate"
            raise InputError(f"{cafile}: {why}; it must hold certificates (PEM)") from None
    access = Access(user, password_file, token_file, tls)
    try:
        access.header()
    except ScrapeError as fault:
        raise InputError(str(fault)) from None
    return access


def _timeout(given_s: float | None, settings: Live) -> float:
    if given_s is None:
        return _TIMEOUT_S if settings.once else min(_TIMEOUT_S, settings.interval_s)
    if given_s > settings.interval_s and not settings.once:
        raise click.BadParameter(
            f"is longer than the interval of {settings.interval_s:g} s; a page must be there "
            "before the next is asked for",
            param_hint="--timeout",
        )
    return given_s


def _default_source(targets: Sequence[Target]) -> str:
    """A name that a collector of the same exporters on the same host always gets."""
    first = targets[0].instance[:80]
    digest = hashlib.sha256("\n".join(str(each.url) for each in targets).encode()).hexdigest()[:8]
    return f"{socket.gethostname()[:64]}/{first}-{digest}"
