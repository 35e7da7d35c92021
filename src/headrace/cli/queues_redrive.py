"""`headrace queues redrive`: dead letters go back to their queue.

Owns options, progress, and what the command says at its end. Which letters go and how is
`headrace.client.queues.redrive`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import click

from headrace.cli.client import NotFound, call, caller, json_option, named, url_option
from headrace.cli.definitions import QUEUES
from headrace.cli.mqtt_options import Seconds, tls_of, tls_options
from headrace.cli.processes import stop_on_signals
from headrace.cli.where import mqtt_option
from headrace.client.errors import ClientError
from headrace.client.queues import Queue
from headrace.client.queues.redrive import GROUP, REASONS, Chosen, Counts, Owed, Pace, Redrive
from headrace.queue_settings import DEAD_LETTERS
from headrace.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.model import Address

_TIMEOUT_MS: Final = 15_000
"""Until a broker that does not answer ends the redrive: the node did, over HTTP."""


@click.command()
@click.argument("name")
@click.option(
    "--reason", "reasons", type=click.Choice(REASONS), multiple=True,
    help="Only those that died of it. [repeat]",
)  # fmt: skip
@click.option("--group", help="Only those that were dead to this group.")
@click.option(
    "--rate", type=Seconds(0, min_open=True), metavar="N", help="At most so many in a second."
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many.")
@mqtt_option
@tls_options
@url_option
@json_option
def redrive(
    *, name: str, reasons: tuple[str, ...], group: str | None, rate: float | None,
    limit: int | None, broker: Address, url: str, as_json: bool, **tls: Any,  # noqa: ANN401
) -> None:  # fmt: skip
    """Send the dead letters of a queue back to it.

    Each letter of NAME.dlq becomes a message of NAME again, with its payload, key and user
    properties, and attempts that count anew; all groups of NAME get it, also those that had settled
    it. A letter is settled once its message is on disk. What was interrupted or killed can be done
    again: no message is stored twice. What dies meanwhile, or again, stays for a later redrive.

    Letters that the options do not choose stay, for a later redrive. They are held while it runs,
    50,000 at most: what is behind so many is reached when some of them are gone. Letters of one
    message, which died in several groups, bring it back once.

    It goes over MQTT, and ends with 1 where it had to leave letters that it was to send, or where
    another redrive of the queue is under way. It is the group redrive of NAME.dlq, which lasts and
    knows what was sent: what other groups have settled is sent all the same, and later letters
    count as its own in `list`. `headrace queues purge NAME.dlq` has the letters gone.

    \b
    Examples:
      headrace queues redrive jobs
      headrace queues redrive jobs --reason attempts --rate 50
      headrace queues redrive jobs --group billing --limit 1
    """
    before = _check(url, name)
    dead = name + DEAD_LETTERS
    letters = _asked(url, dead)
    ends = [] if letters is None else [each["end"] for each in letters["partitions"]]
    if letters is None or _left(letters, ends) == 0:
        _tell(name, Counts(), 0, 0, as_json=as_json)
        return
    if letters["effective"]["paused"]["value"] == "on":
        raise click.ClickException(f"{dead} is paused; headrace queues resume {dead}")
    client_id = f"redrive-{uuid.uuid4().hex[:8]}"
    queue = Queue(
        dead,
        str(broker),
        client_id=client_id,
        login=caller(url)[1],
        ssl_context=tls_of(tls, broker.port),
        default_api_timeout_ms=_TIMEOUT_MS,
    )
    context = click.get_current_context()

    def look() -> Owed | None:
        with context.scope(cleanup=False), suppress(click.ClickException):
            letters = _asked(url, dead)
            return None if letters is None else _owed(letters, ends, client_id)
        return None

    work = Redrive(
        name, queue, Chosen(frozenset(reasons), group), Pace(rate), limit, ends,
        lambda: asyncio.to_thread(look),
    )  # fmt: skip
    with _shown(work.counts, dead):
        is_interrupted, error = asyncio.run(_run(work))
    left: int | None = None
    known = work.counts.repeats
    try:
        letters = _asked(url, dead)
        left = 0 if letters is None else _left(letters, ends)
        # What it has not grown by, it had: others who publish hide some of that.
        grown = _end(QUEUES.call(url, "GET", name)) - before
        known = max(known, work.counts.done - max(grown, 0))
    except click.ClickException as absent:
        error = error or absent
    _tell(name, work.counts, known, left, as_json=as_json)
    _fail(work.counts, error, is_interrupted=is_interrupted)


def _fail(counts: Counts, error: Exception | None, *, is_interrupted: bool) -> None:
    """Says why it has not done what it was to do, if so."""
    if error is not None:
        raise error
    if counts.refused:
        raise click.ClickException(f"{counted(counts.refused, 'letter')}: {counts.why}")
    if is_interrupted:
        raise click.Abort


async def _run(work: Redrive) -> tuple[bool, Exception | None]:
    """Whether a signal has ended it, and what went wrong."""
    stopping = stop_on_signals()
    heeding = asyncio.create_task(stopping.wait())
    heeding.add_done_callback(lambda _: work.stop())
    try:
        await work.run()
    except ClientError as error:
        return stopping.is_set(), error
    finally:
        heeding.cancel()
    return stopping.is_set(), None


def _end(queue: dict[str, Any]) -> int:
    """Messages that a queue was ever given."""
    return sum(each["end"] for each in queue["partitions"])


def _check(url: str, name: str) -> int:
    """Refuses what is no queue with dead letters; how many messages it was given so far.

    Raises:
        ClickException: there is no such queue.
        UsageError: it is one of dead letters, and has none of its own.
    """
    end = _end(QUEUES.call(url, "GET", name))
    if name.endswith(DEAD_LETTERS) and _asked(url, name + DEAD_LETTERS) is None:
        queue = name.removesuffix(DEAD_LETTERS)
        raise click.UsageError(f"name the queue, not its dead letters: {queue}")
    return end


def _asked(url: str, name: str) -> dict[str, Any] | None:
    """A queue as the node tells it; None where there is none."""
    try:
        return call(url, "GET", named(QUEUES.path, name))
    except NotFound:
        return None


def _group(letters: dict[str, Any]) -> dict[str, Any] | None:
    groups = (each for each in letters["groups"] if each["filter"] is None)
    return next((each for each in groups if each["group"] == GROUP), None)


def _left(letters: dict[str, Any], ends: Sequence[int]) -> int:
    """Letters before these ends of the partitions that no redrive has sent."""
    group = _group(letters)
    left = 0
    if group is None:
        for each, end in zip(letters["partitions"], ends, strict=False):
            left += max(end - each["start"], 0)
        return left
    for each, end in zip(group["partitions"], ends, strict=False):
        behind = min(each["floor"] + each["lag"] - end, each["lag"])  # which the group owes, all
        left += max(each["depth"] - max(behind, 0), 0)
    return left


def _owed(letters: dict[str, Any], ends: Sequence[int], client_id: str) -> Owed | None:
    group = _group(letters)
    if group is None:
        return None
    here = [each for each in group["consumers"] if each["connected"]]  # as they came
    own = [each for each in here if each["client"].startswith(client_id)]
    return Owed(
        _left(letters, ends),
        group["depth"],
        group["in_flight"],
        sum(each["open"] for each in own),
        here[0]["client"] if here and here[0] not in own else None,
    )


def _tell(name: str, counts: Counts, known: int, left: int | None, *, as_json: bool) -> None:
    """Says what was done; `known` letters were of messages that the queue had already."""
    dead, new = name + DEAD_LETTERS, counts.done - known
    if as_json:
        told = {"queue": name, "dead_letters": dead, "redriven": new, "known": known, "left": left}
        click.echo(json.dumps({**told, "refused": counts.refused}))
    elif not counts.done and left == 0:
        click.echo(f"no dead letters: {dead} has nothing to send back")
    else:
        are, were = ("is" if new == 1 else "are"), ("was" if known == 1 else "were")
        rest = f"; {counted(known, 'letter')} {were} of what it had already" if known else ""
        rest += "" if left is None else f"; {left:,} left"
        rest += "; what is left does not come now" if counts.is_still else ""
        click.echo(f"{counted(new, 'message')} of {dead} {are} in {name} again{rest}")


@contextmanager
def _shown(counts: Counts, dead: str) -> Iterator[None]:
    """What was done so far, on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import, and --help needs none
    from rich.progress import Progress, ProgressColumn, SpinnerColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    class Done(ProgressColumn):
        def render(self, task: object) -> Text:
            del task
            return Text(f"{counts.done:,} of {dead} sent, {len(counts.passed):,} passed over")

    bar = Progress(
        SpinnerColumn(), Done(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    )
    with bar:
        bar.add_task("")
        yield
