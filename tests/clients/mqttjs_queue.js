// One MQTT.js client consumes a queue, settles by PUBACK, and prints what it was given.
// usage: node mqttjs_queue.js URL PROTOCOL_VERSION QUEUE DELIVERIES
//
// With 5.0 it refuses the first delivery of the payload "again"; 3.1.1 has no PUBACK that refuses.
const mqtt = require("mqtt");

const url = process.argv[2];
const protocolVersion = Number(process.argv[3]);
const queue = process.argv[4];
const deliveries = Number(process.argv[5]);
const v5 = protocolVersion === 5;
const UNSPECIFIED_ERROR = 0x80;

async function main() {
  const given = [];
  let end;
  const all = new Promise((resolve) => { end = resolve; });
  const take = (topic, message, packet) => {
    given.push([topic, message.toString(), packet.properties?.userProperties?.["message-id"] ?? null]);
    if (given.length === deliveries) end();
  };
  const client = await mqtt.connectAsync(url, {
    protocolVersion,
    reconnectPeriod: 0,
    // Of 5.0 alone.
    customHandleAcks: (topic, message, packet, answer) => {
      const isFirst = given.every(([, payload]) => payload !== message.toString());
      take(topic, message, packet);
      answer(isFirst && message.toString() === "again" ? UNSPECIFIED_ERROR : 0);
    },
  });
  if (!v5) client.on("message", take);
  const filter = v5 ? `$queue/${queue}` : `$queue/${queue}?group=js`;
  const userProperties = { "consumer-group": "js", settle: "puback" };
  const options = v5 ? { qos: 1, properties: { userProperties } } : { qos: 1 };
  const granted = await client.subscribeAsync(filter, options);
  await all;
  await client.endAsync();
  console.log(JSON.stringify({ granted: granted.map((entry) => entry.qos), given }));
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
