"""The demonstrations of a broker that speaks AMQP to stock clients: routing, confirms, competing consumers, durability."""

import threading
import time

import pika
from common import PERSISTENT, CLOSED, channel, collect, connect, drain, ready, run


def exchanges():
    ch = channel()
    ch.exchange_declare("orders", exchange_type="direct")
    for q, key in [("q.paid", "paid"), ("q.refund", "refunded")]:
        ch.queue_declare(q)
        ch.queue_bind(q, "orders", routing_key=key)
    for key, body in [("paid", "1001"), ("refunded", "0999"), ("paid", "1002"), ("cancelled", "1003")]:
        ch.basic_publish("orders", key, body)
    assert (drain(ch, "q.paid"), drain(ch, "q.refund")) == (["1001", "1002"], ["0999"])

    ch.exchange_declare("cache-bust", exchange_type="fanout")
    for q in ("node-a", "node-b", "node-c"):
        ch.queue_declare(q)
        ch.queue_bind(q, "cache-bust")
    ch.basic_publish("cache-bust", "ignored", "42")
    assert [drain(ch, q) for q in ("node-a", "node-b", "node-c")] == [["42"]] * 3

    ch.exchange_declare("logs", exchange_type="topic")
    binds = {"all-errors": "*.error", "eu-everything": "eu.#", "eu-west-db": "eu.west.db.*"}
    for q, pattern in binds.items():
        ch.queue_declare(q)
        ch.queue_bind(q, "logs", routing_key=pattern)
    for key in ["api.error", "eu.west.db.error", "eu.west.db.slow", "eu", "us.east.api.info"]:
        ch.basic_publish("logs", key, key)
    assert drain(ch, "all-errors") == ["api.error"]
    assert drain(ch, "eu-everything") == ["eu.west.db.error", "eu.west.db.slow", "eu"]
    assert drain(ch, "eu-west-db") == ["eu.west.db.error", "eu.west.db.slow"]
    # Two bindings that match the same queue bring one copy.
    ch.queue_bind("all-errors", "logs", routing_key="#")
    ch.basic_publish("logs", "api.error", "once")
    assert drain(ch, "all-errors") == ["once"]


def confirms():
    ch = channel()
    ch.confirm_delivery()
    ch.queue_declare("jobs")
    ch.basic_publish("", "jobs", "resize")
    try:
        ch.basic_publish("", "no-such-queue", "lost?", mandatory=True)
        raise AssertionError("an unroutable mandatory message was taken")
    except pika.exceptions.UnroutableError as error:
        returned = error.messages[0].method
        assert (returned.reply_code, returned.reply_text) == (312, "NO_ROUTE")
    method, _, _ = ch.basic_get("jobs")
    assert not method.redelivered
    ch.basic_nack(method.delivery_tag, requeue=True)
    method, _, _ = ch.basic_get("jobs")
    assert method.redelivered
    ch.basic_ack(method.delivery_tag)
    try:
        ch.exchange_declare("odd", exchange_type="odd")
        raise AssertionError("an unknown exchange type was taken")
    except CLOSED as closed:
        assert closed.reply_code == 406 and "odd" in closed.reply_text


def competing():
    def share(prefetch):
        queue, log = f"work-{prefetch}", []
        setup = channel()
        setup.queue_declare(queue, durable=True)
        started, stop = threading.Barrier(3), threading.Event()

        def worker(name, cost):
            conn = connect()
            ch = conn.channel()
            if prefetch:
                ch.basic_qos(prefetch_count=prefetch)

            def on_message(ch, method, _, body):
                time.sleep(cost)
                log.append((name, body.decode()))
                ch.basic_ack(method.delivery_tag)

            ch.basic_consume(queue, on_message)
            started.wait()
            while not stop.is_set():
                conn.process_data_events(0.05)

        workers = [threading.Thread(target=worker, args=a) for a in [("fast", 0.01), ("slow", 0.2)]]
        [w.start() for w in workers]
        started.wait()
        for n in range(12):
            setup.basic_publish("", queue, f"job-{n:02}")
        while len(log) < 12:
            time.sleep(0.02)
        stop.set()
        [w.join() for w in workers]
        assert sorted(body for _, body in log) == [f"job-{n:02}" for n in range(12)]
        return sum(name == "fast" for name, _ in log)

    assert share(0) == 6
    assert share(1) >= 9


def publish_durable():
    ch = channel()
    ch.confirm_delivery()
    ch.queue_declare("invoices", durable=True)
    ch.queue_declare("scratch")
    for n in range(3):
        ch.basic_publish("", "invoices", f"invoice-{n}", PERSISTENT)
    ch.basic_publish("", "invoices", "draft", pika.BasicProperties(delivery_mode=1))
    ch.basic_publish("", "scratch", "gone", PERSISTENT)
    assert ready(ch, "invoices") == 4


def check_durable():
    ch = channel()
    ch.queue_declare("invoices", durable=True)
    found = collect(ch, "invoices", 3)
    assert [body.decode() for _, _, body in found] == ["invoice-0", "invoice-1", "invoice-2"]
    assert all(method.redelivered for method, _, _ in found)
    assert all(properties.content_type == "text/plain" for _, properties, _ in found)
    assert all(properties.delivery_mode == 2 for _, properties, _ in found)
    ch.basic_ack(found[-1][0].delivery_tag, multiple=True)
    ch.cancel()
    assert ready(ch, "invoices") == 0
    try:
        ch.queue_declare("scratch", passive=True)
        raise AssertionError("a transient queue survived")
    except CLOSED as closed:
        assert closed.reply_code == 404, closed


def bind_bridge():
    ch = channel()
    ch.queue_declare("temp-alerts", durable=True)
    ch.queue_bind("temp-alerts", "amq.topic", routing_key="sensors.*.temp")


def consume_bridge(*bodies):
    ch = channel()
    ch.basic_qos(prefetch_count=10)
    for method, properties, body in collect(ch, "temp-alerts", len(bodies)):
        assert (method.exchange, method.routing_key) == ("amq.topic", "sensors.boiler.temp"), method
        assert properties.delivery_mode == 2
        ch.basic_ack(method.delivery_tag)
        print(body.decode())
    ch.cancel()
    assert ready(ch, "temp-alerts") == 0


def publish_bridge(key, body):
    ch = channel()
    ch.confirm_delivery()
    ch.basic_publish("amq.topic", key, body, PERSISTENT, mandatory=True)


run({
    "exchanges": exchanges,
    "confirms": confirms,
    "competing": competing,
    "publish-durable": publish_durable,
    "check-durable": check_durable,
    "bind-bridge": bind_bridge,
    "consume-bridge": consume_bridge,
    "publish-bridge": publish_bridge,
})
