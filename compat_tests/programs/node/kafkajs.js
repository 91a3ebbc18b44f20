// Does its tasks with kafkajs, whose own codec is gzip alone.
//
//   kafkajs.js produce  BOOTSTRAP TOPIC COUNT CODEC
//   kafkajs.js consume  BOOTSTRAP TOPIC COUNT GROUP
//   kafkajs.js transact BOOTSTRAP TOPIC COUNT
//   kafkajs.js copy     BOOTSTRAP TOPIC COUNT GROUP TARGET

//
// CLIENT_CA, CLIENT_CERTIFICATE (with its key), CLIENT_USER and CLIENT_PASSWORD of the environment
// let it connect with TLS, with a certificate and with SCRAM.

import { readFileSync } from "node:fs";

import kafkajs from "kafkajs";

const { CompressionTypes, Kafka, logLevel } = kafkajs;
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP };
const [verb, bootstrap, topic, countText, ...rest] = process.argv.slice(2);
const count = Number(countText);
const kafka = new Kafka({
  clientId: "kafkajs",
  brokers: [bootstrap],
  logLevel: logLevel.ERROR,
  ...security(process.env),
});

function security({ CLIENT_CA, CLIENT_CERTIFICATE, CLIENT_USER, CLIENT_PASSWORD }) {
  if (!CLIENT_CA) return {};
  const own = CLIENT_CERTIFICATE && readFileSync(CLIENT_CERTIFICATE);
  const ssl = { ca: [readFileSync(CLIENT_CA)], ...(own && { cert: own, key: own }) };
  const login = { mechanism: "scram-sha-512", username: CLIENT_USER, password: CLIENT_PASSWORD };
  return CLIENT_USER ? { ssl, sasl: login } : { ssl };
}

function messages(prefix) {
  return Array.from({ length: count }, (_, i) => ({
    key: `key-${i % 10}`,
    value: `${prefix}-${i}`,
    headers: { index: `${i}` },
  }));
}

async function produce([codec]) {
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  await producer.send({ topic, messages: messages("value"), compression: CODECS[codec] });
  await producer.disconnect();
}

// Takes part in a group and calls take for each message, until enough is taken.
async function read(groupId, take) {
  const consumer = kafka.consumer({ groupId, readUncommitted: false });
  const ended = {};
  const end = new Promise((resolve, reject) => Object.assign(ended, { resolve, reject }));
  let left = count;
  consumer.on(consumer.events.CRASH, ({ payload }) => ended.reject(payload.error));
  process.once("SIGTERM", () => ended.reject(new Error(`${left} records did not come`)));
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      if (left === 0) return;
      const offset = `${BigInt(message.offset) + 1n}`;
      await take(message, partition, offset, consumer);
      left -= 1;
      if (left === 0) ended.resolve();
    },
  });
  await end.finally(() => consumer.disconnect());
}

async function consume([groupId]) {
  await read(groupId, async (message, partition, offset, consumer) => {
    const parts = [message.key, message.value, message.headers.index ?? ""];
    console.log([partition, message.offset, ...parts].join("\t"));
    await consumer.commitOffsets([{ topic, partition, offset }]);
  });
}

function transactional(transactionalId) {
  return kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 });
}

async function transact() {
  const producer = transactional(topic);
  await producer.connect();
  for (const [prefix, end] of [["kept", "commit"], ["dropped", "abort"], ["later", "commit"]]) {
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: messages(prefix) });
    await transaction[end]();
  }
  await producer.disconnect();
}

async function copy([groupId, target]) {
  const producer = transactional(groupId);
  await producer.connect();
  await read(groupId, async ({ key, value, headers }, partition, offset) => {
    const transaction = await producer.transaction();
    await transaction.send({ topic: target, messages: [{ key, value, headers }] });
    const topics = [{ topic, partitions: [{ partition, offset }] }];
    await transaction.sendOffsets({ consumerGroupId: groupId, topics });
    await transaction.commit();
  });
  await producer.disconnect();
}

await { produce, consume, transact, copy }[verb](rest);
