// npm's amqplib against the gateway: routing, confirms, returns, prefetch, requeue, errors of a channel.
// Arguments: host, port.
'use strict';
const assert = require('assert');
const amqp = require('amqplib');

const [host, port] = process.argv.slice(2);

async function main() {
  const connection = await amqp.connect(`amqp://guest:guest@${host}:${port}`);
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue('js.work', { durable: true, maxPriority: 5 });
  await channel.bindQueue('js.work', 'amq.topic', 'sensors.*.temp');
  const returned = [];
  channel.on('return', (message) => returned.push(message.fields.replyCode));
  const confirmed = (exchange, key, body, options) =>
    new Promise((resolve, reject) =>
      channel.publish(exchange, key, Buffer.from(body), options, (error) => (error ? reject(error) : resolve())));
  await confirmed('amq.topic', 'sensors.boiler.temp', '91.5', { persistent: true, headers: { unit: 'C' } });
  await confirmed('', 'no-such-queue', 'lost', { mandatory: true });
  assert.deepStrictEqual(returned, [312]);
  await confirmed('', 'js.work', 'urgent', { priority: 5 });

  await channel.prefetch(1);
  const seen = [];
  await new Promise((resolve) => {
    channel.consume('js.work', (message) => {
      if (message === null) return; // The queue is gone.
      const body = message.content.toString();
      if (body === 'urgent' && !message.fields.redelivered) {
        channel.nack(message);
        return;
      }
      seen.push([body, message.fields.redelivered, message.properties.headers.unit]);
      channel.ack(message);
      if (seen.length === 2) resolve();
    });
  });
  assert.deepStrictEqual(seen, [['urgent', true, undefined], ['91.5', false, 'C']]);

  const wrong = await connection.createChannel();
  const closed = new Promise((resolve) => wrong.on('error', resolve));
  await assert.rejects(wrong.checkQueue('absent'), /404 \(NOT-FOUND\)/);
  assert.strictEqual((await closed).code, 404);

  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.deepStrictEqual(await channel.deleteQueue('js.work'), { messageCount: 0 });
  await connection.close();
  console.log('ok');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
