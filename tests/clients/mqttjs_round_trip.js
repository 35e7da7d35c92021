// One MQTT.js client subscribes, publishes at the given QoS and prints what comes back.
// usage: node mqttjs_round_trip.js URL PROTOCOL_VERSION QOS TOPIC PAYLOAD [FILE_OF_AUTHORITY]
const fs = require("fs");
const mqtt = require("mqtt");

const url = process.argv[2];
const [protocolVersion, qos] = process.argv.slice(3, 5).map(Number);
const [topic, payload, authority] = process.argv.slice(5);
const ca = authority ? fs.readFileSync(authority) : undefined;
const v5 = protocolVersion === 5;

async function main() {
  const client = await mqtt.connectAsync(url, { protocolVersion, ca, reconnectPeriod: 0 });
  const granted = await client.subscribeAsync(topic.replace(/[^/]+$/, "+"), { qos });
  const received = new Promise((resolve) => {
    client.on("message", (name, message, packet) => resolve([name, message, packet]));
  });
  const properties = v5 ? { contentType: "text/plain", userProperties: { unit: "C" } } : undefined;
  const acknowledged = await client.publishAsync(topic, payload, { qos, properties });
  const [name, message, packet] = await received;
  await client.endAsync();
  console.log(JSON.stringify({
    granted: granted.map((entry) => entry.qos),
    acknowledged: qos > 0 ? (acknowledged.reasonCode ?? 0) : null,
    topic: name,
    payload: message.toString(),
    qos: packet.qos,
    contentType: packet.properties?.contentType ?? null,
    unit: packet.properties?.userProperties?.unit ?? null,
  }));
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
