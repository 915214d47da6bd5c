"""The chain of custody: what each link promises, and what breaks when it is not used."""

import pika
from common import PERSISTENT, channel, collect, connect, drain, ready, refused, run, until, wait_ready


def fill(ch, queue, count):
    ch.queue_declare(queue)
    for n in range(1, count + 1):
        ch.basic_publish("", queue, f"task {n}")


def crash(queue, prefetch, auto_ack=False):
    """A consumer handles the first task and dies with the second in its hands."""
    conn = connect()
    ch = conn.channel()
    ch.basic_qos(prefetch_count=prefetch)
    first, second = collect(ch, queue, 2, auto_ack=auto_ack) if prefetch != 1 else one_by_one(ch, queue)
    if not auto_ack and prefetch != 1:
        ch.basic_ack(first[0].delivery_tag)
        conn.process_data_events(0.2)
    assert second[2] == b"task 2"
    conn.close()


def one_by_one(ch, queue):
    found = []
    for delivery in ch.consume(queue, inactivity_timeout=10):
        found.append(delivery)
        if len(found) == 2:
            return found
        ch.basic_ack(delivery[0].delivery_tag)


def consumer_acknowledgements():
    ch = channel()
    fill(ch, "work.autoack", 5)
    crash("work.autoack", 0, auto_ack=True)
    assert ready(ch, "work.autoack") == 0
    for prefetch, marks in [(1, [True, False, False]), (2, [True, True, False]), (0, [True, True, True])]:
        queue = f"work.manual.{prefetch}"
        fill(ch, queue, 4)
        crash(queue, prefetch)
        wait_ready(ch, queue, 3)
        found = collect(ch, queue, 3)
        assert [b.decode() for _, _, b in found] == ["task 2", "task 3", "task 4"]
        assert [m.redelivered for m, _, _ in found] == marks, (prefetch, found)
        ch.basic_ack(found[-1][0].delivery_tag, multiple=True)
        ch.cancel()


def rejecting():
    ch = channel()
    fill(ch, "work.nack", 2)
    for tag, redelivered, left, settle in [
        (1, False, 1, lambda: ch.basic_nack(1, requeue=True)),
        (2, True, 1, lambda: ch.basic_reject(2, requeue=False)),
        (3, False, 0, lambda: ch.basic_ack(3)),
    ]:
        method, _, _ = ch.basic_get("work.nack")
        assert (method.delivery_tag, method.redelivered, method.message_count) == (tag, redelivered, left)
        settle()
    assert ready(ch, "work.nack") == 0
    fill(ch, "work.other", 1)
    method, _, _ = ch.basic_get("work.other")
    other = ch.connection.channel()

    def acknowledge(other):
        other.basic_ack(method.delivery_tag)
        other.queue_declare("work.other", passive=True)

    refused(406, "PRECONDITION_FAILED - unknown delivery tag 4", acknowledge, on=other)


def prefetch():
    ch, watch = channel(), channel()
    fill(ch, "work.window", 10)
    ch.basic_qos(prefetch_count=3)
    taken = []
    ch.basic_consume("work.window", lambda *delivery: taken.append(delivery))
    until(ch.connection, lambda: len(taken) == 3)
    assert ready(watch, "work.window") == 7
    ch.close()
    wait_ready(watch, "work.window", 10)


def publisher_confirms():
    ch = channel()
    ch.confirm_delivery()
    ch.queue_declare("orders.confirmed")
    ch.queue_declare("orders.limited", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    outcomes = []
    for queue, mandatory in [
        ("orders.confirmed", False),
        ("no-such-queue", False),
        ("no-such-queue", True),
        ("orders.limited", False),
        ("orders.limited", False),
    ]:
        try:
            ch.basic_publish("", queue, "order", mandatory=mandatory)
            outcomes.append("confirmed")
        except pika.exceptions.UnroutableError:
            outcomes.append("returned")
        except pika.exceptions.NackError:
            outcomes.append("nacked")
    assert outcomes == ["confirmed", "confirmed", "returned", "confirmed", "nacked"], outcomes


def before_restart():
    ch = channel()
    ch.confirm_delivery()
    ch.queue_declare("orders.durable", durable=True)
    ch.queue_declare("orders.transient")
    ch.basic_publish("", "orders.durable", "persistent order", PERSISTENT)
    ch.basic_publish("", "orders.durable", "transient order", pika.BasicProperties(delivery_mode=1))
    assert ready(ch, "orders.durable") == 2


def after_restart():
    ch = channel()
    assert drain(ch, "orders.durable") == ["persistent order"]
    refused(404, "no queue 'orders.transient' in vhost '/'", lambda ch: ch.queue_declare("orders.transient", passive=True))


def idempotent():
    ch = channel()
    ch.queue_declare("payments")
    for key, amount in [("P-1", "30"), ("P-1", "30"), ("P-2", "45")]:
        ch.basic_publish("", "payments", amount, pika.BasicProperties(message_id=key))
    balance, seen, told = 0, set(), []
    first = channel()
    found = collect(first, "payments", 3)
    for method, properties, body in found:
        told.append((properties.message_id, method.redelivered))
        if properties.message_id not in seen:
            seen.add(properties.message_id)
            balance += int(body)
        if properties.message_id == "P-1":
            first.basic_ack(method.delivery_tag)
    first.connection.process_data_events(0.1)
    first.connection.close()
    wait_ready(ch, "payments", 1)
    method, properties, _ = ch.basic_get("payments")
    told.append((properties.message_id, method.redelivered))
    assert (balance, told) == (75, [("P-1", False), ("P-1", False), ("P-2", False), ("P-2", True)])
    ch.basic_ack(method.delivery_tag)


run({
    "consumer-acknowledgements": consumer_acknowledgements,
    "rejecting": rejecting,
    "prefetch": prefetch,
    "publisher-confirms": publisher_confirms,
    "before-restart": before_restart,
    "after-restart": after_restart,
    "idempotent": idempotent,
})
