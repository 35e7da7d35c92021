"""What became of one test of a suite."""

from typing import NamedTuple


class Outcome(NamedTuple):
    """One test: its name in its suite, whether it passed, and one line of why not."""

    test: str
    passed: bool
    detail: str = ""
