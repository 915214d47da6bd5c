"""aio-pika against the gateway: confirms, returns, a bound queue, prefetch, remote calls, what is kept over a restart.

Arguments: host, port, step."""

import asyncio
import sys

import aio_pika

HOST, PORT, STEP = sys.argv[1], int(sys.argv[2]), sys.argv[3]
URL = f"amqp://guest:guest@{HOST}:{PORT}/"


async def round_trip():
    connection = await aio_pika.connect_robust(URL)
    async with connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        await channel.set_qos(prefetch_count=2)
        shared = await channel.get_exchange("amq.topic")
        queue = await channel.declare_queue("aio.readings", durable=True)
        await queue.bind(shared, "sensors.#")
        for n in range(5):
            message = aio_pika.Message(
                f"reading {n}".encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT, headers={"n": n, "deep": {"of": [n]}}
            )
            await shared.publish(message, f"sensors.hall.{n}")
        try:
            await channel.default_exchange.publish(aio_pika.Message(b"x"), "no-such-queue", mandatory=True)
            raise AssertionError("nobody said that it was not routed")
        except aio_pika.exceptions.PublishError as error:
            assert "NO_ROUTE" in str(error), error
        seen = []
        async with queue.iterator() as messages:
            async for message in messages:
                if message.body == b"reading 2" and not message.redelivered:
                    await message.nack(requeue=True)
                    continue
                assert message.headers["deep"] == {"of": [message.headers["n"]]}
                seen.append((message.body.decode(), message.routing_key, message.redelivered))
                await message.ack()
                if len(seen) == 5:
                    break
        assert sorted(seen) == [(f"reading {n}", f"sensors.hall.{n}", n == 2) for n in range(5)], seen


async def rpc():
    """A remote call over a queue of replies, with correlation identifiers."""
    connection = await aio_pika.connect(URL)
    async with connection:
        channel = await connection.channel()
        calls = await aio_pika.patterns.RPC.create(channel)

        async def double(*, value):
            return 2 * value

        await calls.register("double", double, auto_delete=True)
        assert await asyncio.gather(*(calls.call("double", {"value": n}) for n in range(20))) == [2 * n for n in range(20)]


async def keep():
    connection = await aio_pika.connect(URL)
    async with connection:
        channel = await connection.channel(publisher_confirms=True)
        queue = await channel.declare_queue("aio.kept", durable=True)
        message = aio_pika.Message(b"kept", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, queue.name)


async def kept():
    connection = await aio_pika.connect(URL)
    async with connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("aio.kept", durable=True)
        message = await queue.get(timeout=5)
        assert message.body == b"kept" and message.redelivered
        await message.ack()
        assert await queue.get(fail=False) is None


asyncio.run({"round-trip": round_trip, "rpc": rpc, "keep": keep, "kept": kept}[STEP]())
print("ok")
