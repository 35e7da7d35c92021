// One kafkajs client makes a topic, lets it grow, produces to it, consumes it in a group, and looks
// after all of that.
// usage: node kafkajs_round_trip.js BROKER TOPIC COUNT CODEC [MECHANISM USER PASSWORD FILE_OF_AUTHORITY]
const fs = require("fs");
const kafkajs = require("kafkajs");
const { CompressionTypes, Kafka, logLevel } = kafkajs;

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
  await producer.send({ topic, messages, compression, acks: -1 });
  await producer.disconnect();
  const ends = await admin.fetchTopicOffsets(topic);
  const times = await admin.fetchTopicOffsetsByTimestamp(topic, Date.now() + 60_000);
  await askWithEachAcks(kafka);
  const setting = await changeSetting(admin);
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
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "5" }] });
  const [{ low }] = (await admin.fetchTopicOffsets(topic)).filter((each) => each.partition === 0);
  const acls = mechanism ? await changeAcls(admin) : null;
  await admin.deleteTopics({ topics: [topic] });
  await admin.disconnect();
  const total = (all) => all.reduce((sum, { offset }) => sum + Number(offset), 0);
  const told = { ends: total(ends), times: total(times), setting, low: Number(low), acls };
  console.log(JSON.stringify({ clusterId, got, committed, ...told }));
}

// The stream beside it must hold a record of each.
async function askWithEachAcks(kafka) {
  const producer = kafka.producer();
  await producer.connect();
  for (const acks of [0, 1, -1]) {
    await producer.send({ topic: `${topic}-acks`, messages: [{ value: String(acks) }], acks });
  }
  await producer.disconnect();
}

async function changeSetting(admin) {
  const resource = { type: kafkajs.ConfigResourceTypes.TOPIC, name: topic };
  const configEntries = [{ name: "segment.ms", value: "1000" }];
  await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries }] });
  const asked = [{ ...resource, configNames: ["segment.ms"] }];
  const { resources } = await admin.describeConfigs({ resources: asked, includeSynonyms: false });
  return resources[0].configEntries[0].configValue;
}

// How many there are while it is there, and then. It would close its topic to this client.
async function changeAcls(admin) {
  const about = {
    resourceType: kafkajs.AclResourceTypes.TOPIC,
    resourceName: `${topic}-acls`,
    resourcePatternType: kafkajs.ResourcePatternTypes.LITERAL,
    principal: "User:bob",
    host: "*",
    operation: kafkajs.AclOperationTypes.READ,
    permissionType: kafkajs.AclPermissionTypes.ALLOW,
  };
  await admin.createAcls({ acl: [about] });
  const there = (await admin.describeAcls(about)).resources.length;
  await admin.deleteAcls({ filters: [about] });
  return [there, (await admin.describeAcls(about)).resources.length];
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
