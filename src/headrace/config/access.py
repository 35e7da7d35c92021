"""`[access]`: who is let in, and the rules of what they may do."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from headrace import limits
from headrace.config.readers import DataPath, Flag, Table, Words, count, duration
from headrace.native import AccessRules

ALL = "all"
"""Stands for every action."""


class AccessRule(Table):
    """One of `[[access.rules]]`: whom it is about, and what they may do or not."""

    allow: Words | None = Field(
        default=None,
        description="Actions that it allows: `connect`, `publish`, `subscribe`, `will`, `read`, "
        "`write`, `describe`, or `all`.",
    )
    deny: Words | None = Field(default=None, description="Or those that it denies.")
    users: Words = Field(default=(), description="User names; `*` at the end stands for any.")
    roles: Words = Field(default=(), description="Roles of users.")
    clients: Words = Field(
        default=(),
        description="Client ids, with `{username}`; `*` at the end stands for any.",
    )
    addresses: Words = Field(default=(), description="Networks, such as `10.0.0.0/8`.")
    topics: Words = Field(
        default=(), description="Topic filters, with `{clientid}` and `{username}`."
    )
    streams: Words = Field(default=(), description="Streams; `*` at the end stands for any.")
    groups: Words = Field(default=(), description="Consumer groups; `*` at the end stands for any.")

    @model_validator(mode="after")
    def _is_one_thing(self) -> AccessRule:
        if (self.allow is None) == (self.deny is None):
            raise ValueError("a rule has one of allow and deny")
        if not (self.allow or self.deny):
            raise ValueError(f'a rule names actions, or "{ALL}"')
        for name in self.model_fields_set:
            if getattr(self, name) == ():  # nobody is meant, and everybody would be
                raise ValueError(
                    f"{name} is empty, which fits nothing; without it the rule fits all"
                )
        self.add_to(AccessRules(no_match=False))
        return self

    def add_to(self, rules: AccessRules) -> None:
        """Adds it behind the others.

        Raises:
            ValueError: a part of it cannot be used.
        """
        actions = self.allow or self.deny or ()
        rules.add(
            allows=self.allow is not None,
            actions=[] if ALL in actions else list(actions),
            users=list(self.users),
            roles=list(self.roles),
            clients=list(self.clients),
            addresses=list(self.addresses),
            topics=list(self.topics),
            streams=list(self.streams),
            groups=list(self.groups),
        )


class AccessSettings(Table):
    """`[access]`."""

    users: DataPath | None = Field(
        default=None, description="File of users; `users.json` in the data folder if not set."
    )
    anonymous: Flag = Field(
        default=False,
        description="Whether MQTT and Kafka clients without a user are let in, where there are "
        "users or rules.",
    )
    certificates: Literal["off", "known", "any"] = Field(
        default="known",
        description="Whether a client certificate proves a user, and whether that must be one of "
        "the list.",
    )
    no_match: Literal["allow", "deny"] | None = Field(
        default=None,
        description="What holds where no rule does; `deny` if there are rules, else `allow`.",
    )
    denied_publish: Literal["drop", "disconnect"] = Field(
        default="drop",
        description="What becomes of an MQTT client that publishes where it may not: it is told "
        "(5.0) and stays, or is disconnected.",
    )
    reveal_refusals: Flag = Field(
        default=True,
        description="Whether MQTT 5.0 clients are told that they lack a right (0x87, Not "
        "authorized), or only that something is wrong (0x80, Unspecified error).",
    )
    password_threads: Annotated[int, count(1, 64)] = Field(
        default=limits.PASSWORD_THREADS, description="Threads that check passwords."
    )
    password_queue: Annotated[int, count(1, 100_000)] = Field(
        default=limits.PASSWORD_QUEUE,
        description="Passwords that wait for them; beyond it clients are told to come again.",
    )
    password_cache: Annotated[int, duration(0, limits.DAY_MS)] = Field(
        default=limits.PASSWORD_CACHE_MS,
        description="How long a password that was checked is known; 0 for not at all.",
    )
    rules: tuple[AccessRule, ...] = Field(
        default=(),
        max_length=4096,
        description="What who may do, in the order in which it is asked ([access.md](access.md)).",
    )

    @property
    def allows_unmatched(self) -> bool:
        """Whether what no rule is about is allowed."""
        return (self.no_match or ("deny" if self.rules else "allow")) == "allow"

    def compiled(self) -> AccessRules:
        """The rules, ready to be asked."""
        rules = AccessRules(no_match=self.allows_unmatched)
        for rule in self.rules:
            rule.add_to(rules)
        return rules
