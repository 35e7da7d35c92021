"""Finds the Java that Spark will start, before Spark does.

Owns the search order and the one line that a person reads when there is none. Spark's own answer
to a missing Java is a stack trace and a line of a shell script.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from headrace.spark.errors import JavaMissingError

JAVA_MAJOR_MIN: Final = 17
"""Oldest Java that Spark 4 runs on (its overview page)."""

_REMEDY: Final = (
    f"install Java {JAVA_MAJOR_MIN} or newer (Debian, Ubuntu: apt-get install "
    f"openjdk-{JAVA_MAJOR_MIN}-jre-headless) or set JAVA_HOME"
)
_VERSION: Final = re.compile(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)')


def java_home() -> Path | None:
    """Home of the Java to use, or None where the `java` on PATH serves as it is.

    JAVA_HOME comes first, as in Spark's own scripts, then `java` on PATH.

    Raises:
        JavaMissingError: there is none, or it is older than Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "")
    if not java.is_file():
        where = f"JAVA_HOME={home} holds no bin/java" if home else "no java on PATH"
        raise JavaMissingError(f"Spark needs Java: {where}; {_REMEDY}")
    major = _major(java)
    if major is not None and major < JAVA_MAJOR_MIN:
        raise JavaMissingError(f"Spark needs Java {JAVA_MAJOR_MIN}: {java} is {major}; {_REMEDY}")
    return Path(home) if home else None


def _major(java: Path) -> int | None:
    """Major version; None where it cannot be told.

    From the `release` file beside the binary, for starting a JVM costs half a second; else from
    the binary itself.
    """
    release = java.resolve().parent.parent / "release"
    if release.is_file():
        text = release.read_text(errors="replace")
    else:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
        text = ran.stderr
    found = _VERSION.search(text)
    return int(found[1]) if found else None
