"""`python -m headrace`, and the command `headrace` of an installation.

Says readably where the compiled module is missing or was built for another headrace; all else is
`headrace.cli`.
"""

import sys
from typing import NoReturn

MODULE = {"headrace._native", "_native"}
"""As the import system and the dynamic linker call it."""


def main() -> NoReturn:
    """Runs the command line and exits."""
    try:
        from headrace import cli  # noqa: PLC0415 - loads the compiled module
    except ImportError as error:
        if error.name not in MODULE:
            raise
        place = error.path or "which is not there"
        sys.exit(
            f"headrace: the compiled module, {place}, does not fit this headrace: {error.msg}\n"
            f"build it anew: make setup-run in a source tree, else pip install --force-reinstall "
            f"headrace"
        )
    cli.main()


if __name__ == "__main__":
    main()
