"""Writes docs/benchmarks.md from a result of `headrace bench suite --json`.

    python tools/benchmarks.py docs/benchmarks.json docs/benchmarks.md

A test compares the page with what this writes, so it cannot go stale.
"""

import sys
from pathlib import Path

from headrace.bench.suite.markdown import markdown
from headrace.bench.suite.results_json import read
from headrace.errors import InputError


def render(results: Path) -> str:
    """The page.

    Raises:
        InputError: the file holds no result.
    """
    return markdown(read(results))


def main() -> None:
    """Reads and writes the files that the command line names."""
    results, page = map(Path, sys.argv[1:])
    try:
        page.write_text(render(results), encoding="utf-8")
    except InputError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
