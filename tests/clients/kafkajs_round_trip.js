// One kafkajs client makes a topic, produces to it, lets it grow, and consumes it in a group.
// usage: node kafkajs_round_trip.js BROKER TOPIC COUNT CODEC [MECHANISM USER PASSWORD FILE_OF_AUTHORITY]
const fs = require("fs");
const { CompressionTypes, Kafka, logLevel } = require("kafkajs");

const [broker, topic, count, codec, mechanism, username, password, authority] =
  process.argv.slice(2);
const compression = codec === "gzip" ? CompressionTypes.GZIP : CompressionTypes.None;

async function main() {
  const kafka = new Kafka({
    brokers: [broker],
    clientId: "kafkajs",
    logLevel: logLevel.ERROR,
    ssl: authority ? { ca: [fs.readFileSync(authority)] } : undefined,
    sasl: mechanism ? { mechanism, username, password } : undefined,
  });
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }] });
  await admin.createPartitions({ topicPartitions: [{ topic, count: 2 }] });
  const { clusterId } = await admin.describeCluster();
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  const messages = Array.from({ length: Number(count) }, (_, n) => ({
    key: `key-${n}`,
    value: `value-${n}`,
    headers: { number: String(n) },
  }));
  await producer.send({ topic, messages, compression });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: `group-${topic}` });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const got = [];
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer.run({
      eachMessage: async ({ partition, message }) => {
        const { key, value, headers } = message;
        got.push([partition, String(key), String(value), String(headers.number)]);
        if (got.length === messages.length) resolve();
      },
    });
  });
  await consumer.stop();
  await consumer.disconnect();
  const offsets = await admin.fetchOffsets({ groupId: `group-${topic}`, topics: [topic] });
  const committed = offsets[0].partitions.map(({ offset }) => Number(offset));
  await admin.deleteGroups([`group-${topic}`]);
  await admin.deleteTopics({ topics: [topic] });
  await admin.disconnect();
  console.log(JSON.stringify({ clusterId, got, committed }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
