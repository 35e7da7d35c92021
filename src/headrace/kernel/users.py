"""Changes of the users of a node, each held to what must stay true: somebody can manage it."""

from __future__ import annotations

from headrace.errors import InvalidUserError, UnknownUserError, UserExistsError
from headrace.kernel.credentials import ADMIN, User
from headrace.text import nearest, shown


def same(before: User, user: User) -> bool:
    """Whether a user was not changed."""
    return (before.roles, before.password, before.scram) == (user.roles, user.password, user.scram)


def add(users: dict[str, User], user: User) -> None:
    """Adds a user.

    Raises:
        UserExistsError: there is one of that name.
        InvalidUserError: nobody could manage the node then.
    """
    if user.name in users:
        raise UserExistsError(f"there is a user {shown(user.name)}; give them a password by passwd")
    users[user.name] = user
    _keep_an_admin(users)


def change(users: dict[str, User], made: User, *, roles: bool, password: bool) -> None:
    """Gives a user the roles or the password of `made`.

    Raises:
        UnknownUserError: there is no user of that name.
        InvalidUserError: nobody could manage the node then.
    """
    user = _existing(users, made.name)
    proof = made if password else user
    users[user.name] = User(
        user.name, made.roles if roles else user.roles, proof.password, proof.scram
    )
    _keep_an_admin(users)


def remove(users: dict[str, User], name: str) -> None:
    """Removes a user.

    Raises:
        UnknownUserError: there is no user of that name.
        InvalidUserError: nobody could manage the node then.
    """
    del users[_existing(users, name).name]
    _keep_an_admin(users)


def _existing(users: dict[str, User], name: str) -> User:
    if name not in users:
        raise UnknownUserError(f"there is no user {shown(name)}; {nearest(name, list(users))}")
    return users[name]


def _keep_an_admin(users: dict[str, User]) -> None:
    if not any(user.is_admin and user.password is not None for user in users.values()):
        raise InvalidUserError(
            f"nobody could manage the node: at least one user must have a password and the role "
            f"{ADMIN}"
        )
