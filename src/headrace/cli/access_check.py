"""`headrace access`: what the rules of a configuration say, without a node."""

from __future__ import annotations

import ipaddress
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from headrace.cli.access import acls_of, users_of
from headrace.cli.client import json_option
from headrace.cli.config import checked, file_option
from headrace.cli.filters import check_filter, unshared
from headrace.cli.paths import held_folder
from headrace.config import read
from headrace.errors import InputError, InvalidStreamError, UsersError
from headrace.kernel.acls import Resource, parts
from headrace.kernel.catalog import check_name, is_internal
from headrace.kernel.credentials import ADMIN
from headrace.native import Principal
from headrace.node.access import compiled
from headrace.text import nearest, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.config import Sources
    from headrace.kernel.acls import Acl

TOPICS: Final = ("publish", "subscribe", "will")
STREAMS: Final = ("read", "write", "describe")
ACTIONS: Final = ("connect", *TOPICS, *STREAMS)


class Asked(NamedTuple):
    """Who would do what."""

    user: str | None
    roles: tuple[str, ...]
    client_id: str
    address: str | None
    action: str
    name: str
    is_group: bool

    @property
    def is_stream(self) -> bool:
        """Whether `name` is a stream's."""
        return self.action in STREAMS and not self.is_group

    @property
    def is_own(self) -> bool:
        """Whether `name` is that of a stream of the node's own."""
        return self.is_stream and is_internal(self.name)


class Answer(NamedTuple):
    """Whether it may be, why, and the numbers of rules, from 1, with where they stand."""

    allowed: bool
    why: str
    rule: dict[str, object] | None = None
    hole: dict[str, object] | None = None


@click.group(short_help="Ask what access rules allow.")
def access() -> None:
    """Ask the rules of a configuration what they allow, and which of them decides."""


@access.command()
@click.argument("action", type=click.Choice(ACTIONS))
@click.argument("name", required=False, default="")
@click.option("--user", help="User name; nobody in particular without it.")
@click.option("--role", "roles", multiple=True, help="Role, instead of those of the user. [repeat]")
@click.option("--client-id", default="", help="Client id, of MQTT or Kafka.")
@click.option("--address", metavar="IP", help="Where the client is.")
@click.option("--group", "is_group", is_flag=True, help="NAME is a consumer group.")
@file_option
@click.option("--data", metavar="DIR", help="Folder of the node, with its users.")
@json_option
def check(
    *,
    action: str,
    name: str,
    user: str | None,
    roles: tuple[str, ...],
    client_id: str,
    address: str | None,
    is_group: bool,
    file: Path | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Say whether somebody may do ACTION to NAME, and the rule that says so.

    NAME is a topic for publish and will, a topic filter for subscribe, a stream (or with --group a
    consumer group) for read, write and describe; connect needs none. Settings and users are read
    as a start reads them; no node need run. Passwords are not looked at.

    \b
    Exit codes: 0 allowed, 1 denied, 2 wrong use.

    \b
    Examples:
      headrace access check --config headrace.toml --user meter-1 publish field/meter-1/power
      headrace access check --user ann --address 10.1.2.3 subscribe '#'
      headrace access check --user bob read gpu-telemetry
    """
    asked = Asked(user, roles, client_id, address, action, name, is_group)
    _validate(asked)
    if data is not None:
        held_folder(Path(data), "--data", "give the one that the node has")
    sources = read(file, os.environ, {"node": {"data": data}})
    checked(sources)
    answer = _decided(sources, asked)
    if as_json:
        click.echo(json.dumps(answer._asdict()))
    else:
        click.echo(f"{'allowed' if answer.allowed else 'denied'}: {answer.why}")
    raise click.exceptions.Exit(0 if answer.allowed else 1)


def _validate(asked: Asked) -> None:
    """Refuses what no client could ask.

    Raises:
        UsageError: it is malformed.
    """
    if (asked.action == "connect") == bool(asked.name):
        needs = "takes no NAME" if asked.name else "needs a NAME"
        raise click.UsageError(f"{asked.action} {needs}")
    if asked.is_group and asked.action not in {"read", "describe"}:
        raise click.UsageError("a consumer group is read or described")
    if asked.address is not None:
        try:
            ipaddress.ip_address(asked.address)
        except ValueError:
            raise click.UsageError(f"--address {shown(asked.address)} is no IP address") from None
    try:
        if asked.action in TOPICS:
            _validate_topic(asked.action, asked.name)
        elif asked.is_stream and not (asked.is_own and asked.action != "write"):
            check_name(asked.name)
    except (ValueError, InvalidStreamError) as error:
        raise click.UsageError(str(error)) from None


def _validate_topic(action: str, topic: str) -> None:
    if action != "subscribe" and ("+" in topic or "#" in topic):
        raise ValueError(f"topic {shown(topic)}: + and # are for subscriptions alone")
    check_filter(topic)


def _decided(sources: Sources, asked: Asked) -> Answer:
    """What a node would decide.

    Raises:
        InputError: users cannot be read.
    """
    config = sources.config
    try:
        known, acls = users_of(config).load(), acls_of(config).load()
    except UsersError as error:
        raise InputError(str(error)) from None
    rules = compiled(config.access, acls)
    if not (known or len(rules)):
        return Answer(
            allowed=True, why="there are neither users nor rules, so everybody may do everything"
        )
    if asked.user is None and not config.access.anonymous:
        return Answer(allowed=False, why="nobody is let in without a user (access.anonymous)")
    roles = asked.roles
    is_certified = False
    if asked.user is not None and not roles:
        user = known.get(asked.user)
        is_certified = user is None and config.access.certificates == "any"
        if user is None and not is_certified:
            near = nearest(asked.user, list(known))
            return Answer(allowed=False, why=f"there is no user {shown(asked.user)}; {near}")
        roles = () if user is None else user.roles
    if (why := _reserved(asked, roles)) is not None:
        return Answer(allowed=False, why=why)
    by = Principal(asked.user, list(roles), asked.address, is_certified=is_certified)
    ask = rules.check_group if asked.is_group else rules.check
    name = unshared(asked.name) if asked.action == "subscribe" else asked.name
    allowed, rule, hole = ask(by, asked.client_id, asked.action, name)
    places = _Places(sources, acls)
    why = f"no rule is about it, and {_no_match(sources, acls, asked)}"
    if rule is not None:
        why = places.named(rule)
    if hole is not None:
        why += f"; but not what {places.named(hole)} denies of it"
    return Answer(allowed, why, places.told(rule), places.told(hole))


def _reserved(asked: Asked, roles: Sequence[str]) -> str | None:
    """Why a name is not theirs, whatever rules say; None where rules have a say."""
    if asked.action in {"publish", "will"} and asked.name.startswith("$"):
        return "names that begin with $ are the broker's own, whatever rules say"
    if asked.is_own and ADMIN not in roles:
        return "streams that begin with __ are the node's own, for admins alone whatever rules say"
    return None


def _no_match(sources: Sources, acls: Sequence[Acl], asked: Asked) -> str:
    access = sources.config.access
    if asked.action == "connect":
        return "who is let in may connect"
    names_groups = any(rule.groups for rule in access.rules)
    if asked.is_group and not (names_groups or any(acl.resource is Resource.GROUP for acl in acls)):
        return "groups are everybody's until a rule names some"
    return f"access.no_match is {'allow' if access.allows_unmatched else 'deny'}"


class _Places:
    """Where rules stand: in the configuration, or behind those as ACLs."""

    def __init__(self, sources: Sources, acls: Sequence[Acl]) -> None:
        self._sources = sources
        self._own = len(sources.config.access.rules)
        self._acls = [
            each.text
            for each in parts(acls, allows_unmatched=sources.config.access.allows_unmatched)
        ]

    def _place(self, number: int) -> str | None:
        if number >= self._own:
            return str(acls_of(self._sources.config).path)
        return self._sources.origin("access", "rules", str(number))

    def told(self, number: int | None) -> dict[str, object] | None:
        """A rule, for a program."""
        if number is None:
            return None
        told: dict[str, object] = {"number": number + 1, "place": self._place(number)}
        if number >= self._own:
            told["acl"] = self._acls[number - self._own]
        return told

    def named(self, number: int) -> str:
        """A rule, for a person."""
        if number < self._own:
            return f"rule {number + 1} ({self._place(number)})"
        return f"ACL: {self._acls[number - self._own]} ({self._place(number)})"
