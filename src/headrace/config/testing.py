"""What only tests of what measures a node set: variables that no file and no option has.

They make a node worse on purpose, so they stand in no reference, and a node that heeds one says so
in its log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import ConfigError
from headrace.text import parse_duration_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

TESTING: Final = "HEADRACE_TESTING__"
BATCH_DELAY: Final = f"{TESTING}BATCH_DELAY"


def batch_delay_ms(environment: Mapping[str, str]) -> int:
    """How long a node stands still before each batch; 0 where nobody says so.

    Raises:
        ConfigError: it is no duration, or there is another such variable.
    """
    for variable in environment:
        if variable.startswith(TESTING) and variable != BATCH_DELAY:
            raise ConfigError(f"{variable}: no such variable; tests have {BATCH_DELAY}")
    try:
        return parse_duration_ms(environment.get(BATCH_DELAY, "0ms"))
    except ValueError as fault:
        raise ConfigError(f"{BATCH_DELAY}: {fault}") from None
