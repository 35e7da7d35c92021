"""What `headrace streams` and `headrace queues` share: a queue is a stream.

Owns the options of a definition, the requests that they become, and how its settings are shown.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from headrace.cli.asking import confirm, is_asked
from headrace.cli.client import NotFound, call, named
from headrace.cli.tables import table
from headrace.cli.terminal import one_line
from headrace.queue_settings import read
from headrace.text import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = Callable[..., None]

_KEYS = "topic|level:N|property:NAME"

setting_option: Callable[[Command], Command] = click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Setting. [repeat]"
)


def creation(filter_help: str, key_help: str) -> Callable[[Command], Command]:
    """Options of a command that creates; what they say is given to `created`."""
    return _decorated(
        click.option(
            "--partitions", type=int, default=1, show_default=True, help="Parts of the log."
        ),
        click.option("--filter", "filters", multiple=True, help=f"{filter_help} [repeat]"),
        click.option("--key", metavar=_KEYS, help=key_help),
        setting_option,
    )


def alteration(no_filters_help: str) -> Callable[[Command], Command]:
    """Options of a command that alters; what they say is given to `altered`."""
    return _decorated(
        click.option("--partitions", type=int, help="New number; it may only grow."),
        click.option("--filter", "filters", multiple=True, help="Replaces all filters. [repeat]"),
        click.option("--no-filters", is_flag=True, help=no_filters_help),
        click.option("--key", metavar=_KEYS, help="Record key from now on."),
        setting_option,
        click.option(
            "--unset", "unset", multiple=True, metavar="KEY", help="Back to default. [repeat]"
        ),
    )


def _decorated(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def created(
    name: str,
    *,
    partitions: int,
    filters: tuple[str, ...],
    key: str | None,
    assignments: tuple[str, ...],
) -> dict[str, Any]:
    """The body of the request that creates."""
    return {
        "name": name,
        "partitions": partitions,
        "filters": list(filters),
        "key": key,
        "settings": _settings(assignments),
    }


def altered(
    *,
    partitions: int | None,
    filters: tuple[str, ...],
    no_filters: bool,
    key: str | None,
    assignments: tuple[str, ...],
    unset: tuple[str, ...],
) -> dict[str, Any]:
    """The body of the request that alters.

    Raises:
        UsageError: options contradict each other, or change nothing.
    """
    if filters and no_filters:
        raise click.UsageError("--filter and --no-filters contradict each other; give one of them")
    changed = _settings(assignments)
    if both := changed.keys() & set(unset):
        raise click.UsageError(f"--set and --unset of {min(both)} contradict each other; give one")
    body: dict[str, Any] = {"settings": changed | dict.fromkeys(unset)}
    if partitions is not None:
        body["partitions"] = partitions
    if filters or no_filters:
        body["filters"] = list(filters)
    if key is not None:
        body["key"] = key
    if body == {"settings": {}}:
        raise click.UsageError("nothing to change; give an option")
    return body


def _settings(assignments: tuple[str, ...]) -> dict[str, str | None]:
    settings: dict[str, str | None] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--set takes KEY=VALUE; got {assignment!r}")
        if key in settings:
            raise click.UsageError(f"--set {key} is given twice; give it once")
        settings[key] = value
    return settings


class Kind(NamedTuple):
    """Streams or queues: `things` of a `path`, as answers list them."""

    path: str
    things: str

    def call(
        self, url: str, method: str, name: str, body: dict[str, Any] | None = None, below: str = ""
    ) -> dict[str, Any]:
        """A request about one of them, or what is `below` it.

        Raises:
            ClickException: as `call`; where there is none of the name, one of a like name is named.
        """
        try:
            return call(url, method, named(self.path, name) + below, body)
        except NotFound as error:
            names = [each["name"] for each in call(url, "GET", self.path)[self.things]]
            if name in names:  # it is what is below that is not there
                raise
            raise click.ClickException(f"{error.message}; {nearest(name, names)}") from None

    def delete(self, url: str, name: str, loses: str, *, yes: bool, as_json: bool) -> None:
        """Deletes one of them, with all that it `loses`; a person at a terminal is asked first."""
        self.confirm(url, name, f"delete {name} and {loses}?", yes=yes)
        deleted(self.call(url, "DELETE", name), as_json=as_json)

    def confirm(self, url: str, name: str, question: str, *, yes: bool) -> None:
        """Asks a person at a terminal, if there is what the question is about.

        Raises:
            ClickException: the answer is no; or as `call`.
        """
        if is_asked(yes=yes):
            self.call(url, "GET", name)
            confirm(question)


QUEUES: Final = Kind("/api/v1/queues", "queues")


def deleted(answer: dict[str, Any], *, as_json: bool) -> None:
    """Tells what was deleted."""
    click.echo(json.dumps(answer) if as_json else f"deleted {one_line(answer['deleted'])}")


def show(thing: dict[str, Any], *, own_settings: bool = True) -> None:
    """A stream or queue, for a person: what it is, and where its partitions stand."""
    state = ", paused" if thing.get("paused") else ""
    click.echo(one_line(f"{thing['kind']} {thing['name']}{state}: key {thing['key']}"))
    for topic_filter in thing["filters"]:
        click.echo(one_line(f"  filter {topic_filter}"))
    for name, value in thing["settings"].items() if own_settings else ():
        click.echo(f"  {name} = {read(name, value)}")
    rows = [
        [str(each["partition"]), str(each["start"]), str(each["end"]), f"{each['size_bytes']:,}"]
        for each in thing["partitions"]
    ]
    table(["partition", "start", "end", "bytes"], rows, right={0, 1, 2, 3})


def show_effective(thing: dict[str, Any]) -> None:
    """Every setting that holds, and where it comes from."""
    rows = [
        [name, read(name, each["value"]), each["source"]]
        for name, each in thing["effective"].items()
    ]
    table(["setting", "value", "from"], rows, right=set())
