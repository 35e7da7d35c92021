"""A broker of Apache Kafka, with as much of `RunningNode`'s face as tests of clients need."""

import signal
import subprocess
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from conftest import STOP_SECONDS, unused_ports, wait_for
from headrace.wire.kafka import apis
from headrace.wire.kafka import messages as m
from kafkajars import Tools
from kafkaraw import RawConnection

READY_SECONDS = 120

SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.sasl.scram-sha-256.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
log.dirs={folder}/data
log.retention.ms=-1
log.cleaner.backoff.ms=500
log.cleaner.dedupe.buffer.size=4194304
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""

USER, PASSWORD = "ann", "horse"


class ApacheKafka:
    """One process that is broker and controller, with a listener for all and one for a user."""

    host = "127.0.0.1"

    def __init__(self, tools: Tools, folder: Path) -> None:
        self._tools, self._folder = tools, folder
        folder.mkdir()
        controller, self.kafka, self.sasl = unused_ports()
        self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        self._file = folder / "server.properties"
        text = SETTINGS.format(
            controller=controller, plain=self.kafka, sasl=self.sasl, folder=folder
        )
        self._file.write_text(text)
        user = f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"
        tools.run(
            "kafka.tools.StorageTool", "format", "--cluster-id", "aGVhZHJhY2UtdGVzdHMtaA",
            "--config", str(self._file), "--add-scram", user,
        )  # fmt: skip
        self.start()

    @property
    def servers(self) -> str:
        return f"{self.host}:{self.kafka}"

    @property
    def guarded(self) -> str:
        """The listener that asks for a user."""
        return f"{self.host}:{self.sasl}"

    def start(self) -> None:
        """Starts it, again where it was killed; on return it leads its partitions."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._tools.command("kafka.Kafka", str(self._file)), stdout=log, stderr=log
            )
        wait_for(self._leads, READY_SECONDS)

    def _leads(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            known = self._admin.list_topics(timeout=5)
        except KafkaException:
            return False
        numbers = {name: len(topic.partitions) for name, topic in known.topics.items()}
        return bool(known.brokers) and self._answers(numbers)

    def create_stream(self, name: str, partitions: int = 1, **config: str) -> None:
        """A topic that is led; settings by Kafka's names with `_` for `.`."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, partitions, 1, config=settings)
        self._admin.create_topics([topic])[name].result(30)
        wait_for(lambda: self._answers({name: partitions}))

    def _answers(self, numbers: dict[str, int]) -> bool:
        """Whether leaders of so many partitions know that they are, which is later than it is said.

        librdkafka's own question for offsets may never find the leader that it missed once.
        """
        topics = [
            m.ListOffsetsTopic(
                name=name,
                partitions=[
                    m.ListOffsetsPartition(partition_index=index, timestamp=m.LATEST_TIMESTAMP)
                    for index in range(number)
                ],
            )
            for name, number in numbers.items()
        ]
        with RawConnection(self) as raw:
            answer = raw.call(apis.LIST_OFFSETS, m.ListOffsetsRequest(topics=topics))
        return not any(part.error_code for topic in answer.topics for part in topic.partitions)

    def kill(self) -> None:
        """SIGKILL: no flush, no goodbye."""
        self._process.kill()
        self._process.wait(STOP_SECONDS)

    def close(self) -> None:
        """Ends it."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(STOP_SECONDS)
