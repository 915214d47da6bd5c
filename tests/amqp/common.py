"""What the AMQP scripts share. Arguments of each: host, port, step, then what the step wants."""

import sys
import time

import pika

HOST, PORT = sys.argv[1], int(sys.argv[2])
CLOSED = pika.exceptions.ChannelClosedByBroker


def connect(**more):
    return pika.BlockingConnection(pika.ConnectionParameters(HOST, PORT, **more))


def channel(**more):
    return connect(**more).channel()


def drain(ch, queue):
    """Bodies of everything that is ready."""
    bodies = []
    while True:
        method, _, body = ch.basic_get(queue, auto_ack=True)
        if method is None:
            return bodies
        bodies.append(body.decode())


def ready(ch, queue):
    return ch.queue_declare(queue, passive=True).method.message_count


def wait_ready(ch, queue, count):
    """Waits until `count` messages are ready, at most ten seconds."""
    for _ in range(500):
        if ready(ch, queue) == count:
            return
        time.sleep(0.02)
    raise AssertionError(f"{queue} holds {ready(ch, queue)} messages, not {count}")


def until(conn, condition):
    """Handles what comes until the condition holds, at most ten seconds; one call of pika's may take one message only."""
    for _ in range(200):
        if condition():
            return
        conn.process_data_events(0.05)
    raise AssertionError("it never came")


def collect(ch, queue, count, **consume):
    """The next `count` deliveries as (method, properties, body)."""
    found = []
    for delivery in ch.consume(queue, inactivity_timeout=10, **consume):
        assert delivery[0] is not None, f"only {len(found)} of {count} came from {queue}"
        found.append(delivery)
        if len(found) == count:
            break
    return found


def refused(code, text, act, *arguments, on=None, **named):
    """`act` closes its channel with this code and a text that contains `text`."""
    ch = on or channel()
    try:
        act(ch, *arguments, **named)
    except CLOSED as closed:
        assert closed.reply_code == code and text in closed.reply_text, closed
        assert ch.connection.is_open
        return
    raise AssertionError(f"not refused with {code} {text}")


def run(steps):
    step = steps[sys.argv[3]]
    step(*sys.argv[4:])
    print("ok")


PERSISTENT = pika.BasicProperties(delivery_mode=2, content_type="text/plain")
