// A member of a group that prints what it reads, a value a line, until SIGTERM.
// usage: node kafkajs_member.js BROKER GROUP TOPIC SESSION_MS HEARTBEAT_MS
const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const [broker, groupId, topic, session, heartbeat] = process.argv.slice(2);

async function main() {
  const kafka = new Kafka({ brokers: [broker], clientId: "kafkajs", logLevel: logLevel.NOTHING });
  const consumer = kafka.consumer({
    groupId,
    sessionTimeout: Number(session),
    heartbeatInterval: Number(heartbeat),
    maxWaitTimeInMs: 200,
  });
  process.on("SIGTERM", () => consumer.disconnect().then(() => process.exit(0)));
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ message }) => fs.writeSync(1, `${message.value}\n`),
  });
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
