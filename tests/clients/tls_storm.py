"""Many MQTT clients over TLS, each with a user and a password, that connect, go and come back all at once. Arguments:
MQTT host and port (unused), TLS host and port, CA, number of clients, how often they come back."""

import asyncio
import os
import ssl
import sys
import time

host, port, ca, count, returns = sys.argv[3], int(sys.argv[4]), sys.argv[5], int(sys.argv[6]), int(sys.argv[7])
context = ssl.create_default_context(cafile=ca)
retries = 0
# The devices are machines of their own: their work must not take the processor from what is measured.
os.nice(19)


def text(value):
    return len(value).to_bytes(2, "big") + value.encode()


def connect_packet(number):
    body = text("MQTT") + bytes([4, 0b1100_0010, 0, 0])
    body += text(f"storm-{number}") + text(f"user{number}") + text(f"user{number}")
    return bytes([0x10, len(body)]) + body


async def connect(number, deadline):
    """Tries until the gateway accepts."""
    global retries
    while True:
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port, ssl=context), 30)
            writer.write(connect_packet(number))
            answer = await asyncio.wait_for(reader.readexactly(4), 30)
            assert answer == b"\x20\x02\x00\x00", answer
            return writer
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError) as error:
            retries += 1
            if time.monotonic() > deadline:
                sys.exit(f"client {number} never got in: {error!r}")
            await asyncio.sleep(0.5)


async def herd(word):
    start = time.monotonic()
    writers = await asyncio.gather(*(connect(number, start + 100) for number in range(count)))
    print(f"all connected {word} in {time.monotonic() - start:.1f} s, {retries} retries", flush=True)
    return writers


async def main():
    writers = await herd("once")
    # Time for the other side to begin its own measurement.
    await asyncio.sleep(1)
    for _ in range(returns):
        for writer in writers:
            writer.transport.abort()
        writers = await herd("again")
        await asyncio.sleep(1)
    for writer in writers:
        writer.transport.abort()


asyncio.run(main())
