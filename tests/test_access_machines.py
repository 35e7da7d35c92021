"""Users, SCRAM and what is remembered of passwords, as machines: no node, no clock, no network."""

import base64
import hashlib
import hmac
import os

import pytest

from headrace import limits
from headrace.errors import AuthenticationError, InvalidUserError, UnknownUserError, UserExistsError
from headrace.kernel import credentials, users
from headrace.kernel.credentials import ScramKeys, User
from headrace.kernel.scram import Exchange
from headrace.kernel.verdicts import Failures, Verdicts

SECRET = b"s" * 32


def test_a_password_proves_a_user_and_nothing_of_it_is_kept():
    ann = credentials.make("ann", b"correct horse", ["admin", "admin"], os.urandom)
    assert ann.password.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert ann.roles == ("admin",)
    assert "correct" not in repr(ann)
    assert credentials.matches(ann, b"correct horse")
    assert not credentials.matches(ann, b"correct horse ")
    assert not credentials.matches(None, b""), "nobody's password lets nobody in"
    by_certificate = credentials.make("meter", None, (), os.urandom)
    assert not credentials.matches(by_certificate, SECRET)


@pytest.mark.parametrize(
    ("name", "password", "roles"),
    [
        ("", b"x", []),
        ("a:b", b"x", []),
        ("a/b", b"x", []),
        ("a+", b"x", []),
        ("#", b"x", []),
        ("a b", b"x", []),
        ("a\n", b"x", []),
        ("é" * 129, b"x", []),
        ("a", b"", []),
        ("a", b"x" * 1025, []),
        ("a", b"x", ["no role"]),
    ],
)
def test_what_can_be_no_user_is_refused(name, password, roles):
    with pytest.raises(InvalidUserError):
        credentials.make(name, password, roles, os.urandom)


def test_somebody_can_always_manage():
    plain, admin = User("bob", (), "hash"), User("ann", ("admin",), "hash")
    known: dict[str, User] = {}
    with pytest.raises(InvalidUserError, match="nobody could manage the node"):
        users.add(known, plain)
    known.clear()
    users.add(known, admin)
    users.add(known, plain)
    with pytest.raises(UserExistsError):
        users.add(known, plain)
    with pytest.raises(InvalidUserError):
        users.remove(dict(known), "ann")
    with pytest.raises(InvalidUserError):
        users.change(dict(known), User("ann"), roles=True, password=False)
    with pytest.raises(UnknownUserError, match="did you mean 'bob'"):
        users.remove(known, "bop")
    users.remove(known, "bob")
    assert list(known) == ["ann"]


class Client:
    """The client's side, of a few lines: it shares nothing with ours."""

    def __init__(self, name: str, password: bytes, mechanism: str) -> None:
        self.password, self.hash = password, mechanism[6:].replace("-", "").lower()
        self.bare = f"n={name},r=client"

    def first(self) -> bytes:
        return b"n,," + self.bare.encode()

    def final(self, challenge: bytes) -> bytes:
        said = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salted = hashlib.pbkdf2_hmac(
            self.hash, self.password, base64.b64decode(said["s"]), int(said["i"])
        )
        without = f"c=biws,r={said['r']}"
        message = f"{self.bare},{challenge.decode()},{without}".encode()
        key = hmac.digest(salted, b"Client Key", self.hash)
        signature = hmac.digest(hashlib.new(self.hash, key).digest(), message, self.hash)
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
        server = hmac.digest(salted, b"Server Key", self.hash)
        self.expects = b"v=" + base64.b64encode(hmac.digest(server, message, self.hash))
        return f"{without},p=".encode() + proof


@pytest.mark.parametrize("mechanism", credentials.MECHANISMS)
def test_rfc_5802_both_sides_prove_the_password(mechanism):
    ann = credentials.make("a,=n", b"secret", (), os.urandom)

    def begin(name: str, password: bytes):
        keys = {"a,=n": ann.scram[mechanism]}
        client = Client(name.replace("=", "=3D").replace(",", "=2C"), password, mechanism)
        exchange = Exchange(mechanism, keys.get, "server", SECRET)
        return client, exchange, exchange.first(client.first())

    client, exchange, challenge = begin("a,=n", b"secret")
    assert challenge.startswith(b"r=clientserver,s=")
    assert exchange.username == "a,=n"
    final = client.final(challenge)
    assert exchange.final(final) == client.expects
    for name, password in (("a,=n", b"wrong"), ("eve", b"secret")):
        client, exchange, challenge = begin(name, password)
        with pytest.raises(AuthenticationError, match="user name or password is wrong"):
            exchange.final(client.final(challenge))
    assert begin("eve", b"")[2] == begin("eve", b"")[2], "who is none looks like a user"


def test_rfc_7677_the_example_of_the_standard():
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    keys = credentials.scram_keys("SCRAM-SHA-256", b"pencil", salt, 4096)
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    exchange = Exchange("SCRAM-SHA-256", lambda _: keys, nonce, SECRET)
    first = exchange.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = exchange.final(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    "message",
    [
        b"", b"n", b"n,,", b"n,,n=a", b"p=tls-unique,,n=a,r=b", b"n,a=eve,n=a,r=b",
        b"n,,m=x,n=a,r=b", b"n,,r=b,n=a", b"n,,n=,r=b", b"n,,n=a,r=", b"\xff,,n=a,r=b",
        b"n,,n=" + b"a" * 5000 + b",r=b",
    ],
)  # fmt: skip
def test_a_first_message_that_is_none_is_refused(message):
    exchange = Exchange("SCRAM-SHA-256", lambda _: None, "server", SECRET)
    with pytest.raises(AuthenticationError):
        exchange.first(message)


@pytest.mark.parametrize(
    "message",
    [
        b"", b"c=biws", b"c=biws,r=clientserver", b"c=eSws,r=clientserver,p=AAAA",
        b"c=biws,r=other,p=AAAA", b"c=biws,r=clientserver,p=!", b"c=biws,r=clientserver,p=",
        b"c=biws,r=clientserver,p=AAAA", b"c=\xc3\xa9,r=clientserver,p=AAAA",
    ],
)  # fmt: skip
def test_a_final_message_that_proves_nothing_is_refused(message):
    keys = ScramKeys(b"salt", 1, b"k" * 32, b"k" * 32)
    exchange = Exchange("SCRAM-SHA-256", lambda _: keys, "server", SECRET)
    exchange.first(b"n,,n=a,r=client")
    with pytest.raises(AuthenticationError):
        exchange.final(message)


def test_a_verdict_holds_for_a_time_and_for_the_same_user():
    verdicts, ann = Verdicts(SECRET, 1000), User("ann")
    digest = verdicts.digest("ann", b"x")
    assert digest != verdicts.digest("an", b"nx")
    assert digest != Verdicts(b"t" * 32, 1000).digest("ann", b"x")
    assert verdicts.get(digest, ann, 0) is None
    verdicts.put(digest, ann, is_right=True, now_ms=0)
    assert verdicts.get(digest, ann, 999) is True
    assert verdicts.get(digest, ann, 1000) is None
    assert verdicts.get(digest, User("ann"), 1) is None, "her password was changed"
    verdicts.put(digest, ann, is_right=False, now_ms=0)
    assert verdicts.get(digest, ann, 1) is False
    none = Verdicts(SECRET, 0)
    none.put(digest, ann, is_right=True, now_ms=0)
    assert len(none) == 0


def test_verdicts_are_bounded(monkeypatch):
    monkeypatch.setattr(limits, "VERDICTS_MAX", 10)
    verdicts = Verdicts(SECRET, 1000)
    for number in range(100):
        verdicts.put(b"%d" % number, None, is_right=False, now_ms=0)
    assert len(verdicts) == 10
    assert verdicts.get(b"99", None, 0) is False


def test_an_address_that_keeps_failing_waits_ever_longer():
    failures, now_ms, waits = Failures(), 0, []
    for _ in range(20):
        now_ms += failures.waits_ms("192.0.2.1", now_ms)
        failures.failed("192.0.2.1", now_ms)
        waits.append(failures.waits_ms("192.0.2.1", now_ms) // 1000)
    assert waits == [0] * 10 + [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert failures.waits_ms("192.0.2.2", now_ms) == 0
    assert failures.waits_ms("::ffff:192.0.2.1", now_ms) == 60_000
    now_ms += 11 * limits.AUTHENTICATION_WAIT_MS_MAX
    failures.failed("192.0.2.1", now_ms)
    assert failures.waits_ms("192.0.2.1", now_ms) == 0
    failures.failed(None, now_ms)
    assert failures.waits_ms(None, now_ms) == 0


def test_addresses_that_failed_are_bounded(monkeypatch):
    monkeypatch.setattr(limits, "ADDRESSES_MAX", 10)
    failures = Failures()
    for number in range(100):
        failures.failed(f"10.0.0.{number}", number)
    assert len(failures) == 10
