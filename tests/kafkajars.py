"""Kafka's own tools, from Maven Central (60 MB for each version)."""

import shutil
import subprocess
from pathlib import Path

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId><artifactId>kafka-tools</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>
  </dependency><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>"""


class Tools:
    """The tools of one version."""

    def __init__(self, folder: Path, version: str) -> None:
        self.version = version
        (folder / "pom.xml").write_text(POM.format(version=version))
        maven = shutil.which("mvn")
        assert maven, "mvn is missing: apt-get install maven"
        copy = ["dependency:copy-dependencies", "-DoutputDirectory=jars"]
        subprocess.run([maven, "-q", "-B", *copy], check=True, cwd=folder, timeout=280)
        self._jars = folder / "jars"

    def run(self, tool: str, *arguments: str, stdin: str = "", code: int = 0) -> str:
        """What a tool, by the name of its class, prints."""
        quick = ["-XX:TieredStopAtLevel=1", "-Xmx256m"]
        done = subprocess.run(
            ["java", *quick, "-cp", f"{self._jars}/*", tool, *arguments],
            capture_output=True,
            check=False,
            input=stdin,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, f"{tool}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr
