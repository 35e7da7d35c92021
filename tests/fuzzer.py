"""Fuzzing in Python, as `crates/headrace-core/tests/fuzz` does it: what says something new is kept.

A target takes pieces of bytes and gives the words that it has said about them (ADR 0030). A corpus
is a file of such inputs, one a line, pieces in hex; a failure names the line to add there.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path

import pytest

Pieces = tuple[bytes, ...]
Target = Callable[[Pieces], set[Hashable]]

FOLDER = Path(__file__).parent / "data" / "fuzz"
EDGES = b"\x00\x01\x7f\x80\x81\xfe\xff\r\n 09aF:."
PIECES_MAX = 12
PIECE_BYTES_MAX = 600


def fuzz(target: Target, name: str, *, inputs: int, seconds: float, seed: int) -> None:
    """Runs the corpus `name`, then mutations: so many, or for so much processor time."""
    chance = random.Random(seed)
    file = FOLDER / f"{name}.txt"
    known: set[Hashable] = set()
    kept: list[Pieces] = []
    for pieces in _each(file, kept, chance, inputs, seconds):
        try:
            words = target(pieces)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not be
            line = " ".join(piece.hex() for piece in pieces)
            pytest.fail(f"seed {seed}: {error!r}; add to {file.name}:\n{line}")
        if not words <= known:
            known |= words
            kept.append(pieces)
    if "HEADRACE_FUZZ_KEEP" in os.environ:
        file.write_text("".join(_fewest(target, kept)), encoding="ascii")


def _each(
    file: Path, kept: list[Pieces], chance: random.Random, inputs: int, seconds: float
) -> Iterator[Pieces]:
    for line in file.read_text(encoding="ascii").splitlines():
        yield tuple(bytes.fromhex(piece) for piece in line.split(" "))
    end = time.process_time() + seconds
    tried = 0
    while time.process_time() < end if seconds else tried < inputs:
        yield _mutated(kept, chance)
        tried += 1


def _fewest(target: Target, kept: list[Pieces]) -> Iterator[str]:
    """Lines of short inputs that say together what all of them say."""
    known: set[Hashable] = set()
    for pieces in sorted(kept, key=lambda pieces: (sum(map(len, pieces)), pieces)):
        words = target(pieces)
        if not words <= known:
            known |= words
            yield " ".join(piece.hex() for piece in pieces if piece) + "\n"


def _mutated(kept: list[Pieces], chance: random.Random) -> Pieces:
    pieces = list(chance.choice(kept))
    for _ in range(chance.randint(1, 4)):
        other = chance.choice(chance.choice(kept))
        at = chance.randrange(len(pieces))
        match chance.randrange(5):
            case 0 if len(pieces) < PIECES_MAX:
                pieces.insert(at, other)
            case 1 if len(pieces) > 1:
                del pieces[at]
            case 2 if len(pieces) < PIECES_MAX:  # the same bytes, cut elsewhere
                cut = chance.randint(0, len(pieces[at]))
                pieces[at : at + 1] = [pieces[at][:cut], pieces[at][cut:]]
            case _:
                pieces[at] = _changed(pieces[at], other, chance)
    return tuple(pieces)


def _changed(piece: bytes, other: bytes, chance: random.Random) -> bytes:
    data = bytearray(piece or b"\0")
    at = chance.randrange(len(data))
    match chance.randrange(5):
        case 0:
            data[at] ^= 1 << chance.randrange(8)
        case 1:
            data[at] = chance.choice(EDGES)
        case 2:
            del data[at : at + chance.randint(1, 4)]
        case 3:
            start = chance.randint(0, len(other))
            data[at:at] = other[start : start + chance.randint(1, 16)]
        case _:
            data.insert(at, chance.randrange(256))
    return bytes(data[:PIECE_BYTES_MAX])
