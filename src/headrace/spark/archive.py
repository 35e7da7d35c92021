"""The class archive with which Spark's JVM starts in two thirds of the time.

A start of Spark loads some 18,000 classes from 280 jars, and verifies each. An archive holds them
as the JVM has them in memory, and the next JVM maps it (JEP 350: JDK 13 and newer).

Owns where the archive lies. It belongs to one Java and one Spark, and goes with the Python
environment that has that Spark. A JVM that it does not suit starts without it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import pyspark

from headrace.spark.java import java_home


def archive_path() -> Path:
    """Where the archive for the Java and the Spark that a session would start is, or would be.

    Raises:
        JavaMissingError: no Java 17 or newer is found.
    """
    home = java_home()
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    java = java.resolve()
    release = java.parent.parent / "release"
    told = release.read_bytes() if release.is_file() else b""
    spark = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    identity = hashlib.sha256("\0".join([str(java), spark]).encode() + told).hexdigest()[:12]
    return Path(sys.prefix, "share", "headrace", f"spark-{pyspark.__version__}-{identity}.jsa")


def reading(archive: Path) -> list[str]:
    """Options of a JVM that uses it, if it is there."""
    return [f'"-XX:SharedArchiveFile={archive}"'] if archive.is_file() else []


def writing(archive: Path) -> list[str]:
    """Options of a JVM that makes it when it ends."""
    return [f'"-XX:ArchiveClassesAtExit={archive}"']
