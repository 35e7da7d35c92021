"""Kafka's own tools and brokers, and Spark's Kafka source, from Maven Central."""

import shutil
import subprocess
from pathlib import Path

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId><artifactId>test-jars</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>"""

DEPENDENCY = """<dependency>
    <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
  </dependency>"""


def jars(folder: Path, *artifacts: str, alone: bool = False) -> Path:
    """The folder of the jars of each `group:artifact:version`.

    With them is what they need to run, unless they are to be `alone`.
    """
    dependencies = "".join(DEPENDENCY.format(*each.split(":")) for each in artifacts)
    (folder / "pom.xml").write_text(POM.format(dependencies=dependencies))
    maven = shutil.which("mvn")
    assert maven, "mvn is missing: apt-get install maven"
    copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars"]
    more = [f"-DexcludeTransitive={str(alone).lower()}"]
    subprocess.run([maven, "-q", "-B", *copy, *more], check=True, cwd=folder, timeout=280)
    return folder / "jars"


class Tools:
    """The tools and brokers of one version (60 MB)."""

    def __init__(self, folder: Path, version: str) -> None:
        self.version = version
        names = ["kafka_2.13", "kafka-tools"]
        self._jars = jars(folder, *(f"org.apache.kafka:{name}:{version}" for name in names))

    def command(self, program: str, *arguments: str) -> list[str]:
        """How a program is started, by the name of its class."""
        quick = ["-XX:TieredStopAtLevel=1", "-Xmx256m"]
        return ["java", *quick, "-cp", f"{self._jars}/*", program, *arguments]

    def run(self, tool: str, *arguments: str, stdin: str = "", code: int = 0) -> str:
        """What a tool, by the name of its class, prints."""
        done = subprocess.run(
            self.command(tool, *arguments),
            capture_output=True,
            check=False,
            input=stdin,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, f"{tool}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr
