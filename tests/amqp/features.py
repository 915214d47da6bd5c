"""RabbitMQ's extensions as its clients see them, and the codes with which mistakes are refused."""

import time

import pika
from common import CLOSED, PERSISTENT, channel, collect, connect, drain, ready, refused, run, until, wait_ready

P = pika.BasicProperties


def headers():
    ch = channel()
    ch.exchange_declare("h", exchange_type="headers")
    for q, arguments in [
        ("all", {"x-match": "all", "site": "a", "floor": 2}),
        ("any", {"x-match": "any", "site": "b", "floor": 2}),
        ("x-all", {"x-match": "all-with-x", "x-kind": "alarm"}),
        ("present", {"site": None}),
    ]:
        ch.queue_declare(q)
        ch.queue_bind(q, "h", arguments=arguments)
    for body, given in [
        ("1", {"site": "a", "floor": 2}),
        ("2", {"site": "a"}),
        ("3", {"x-kind": "alarm"}),
        ("4", {"floor": 2}),
    ]:
        ch.basic_publish("h", "", body, P(headers=given))
    assert drain(ch, "all") == ["1"]
    assert drain(ch, "any") == ["1", "4"]
    assert drain(ch, "x-all") == ["3"]
    assert drain(ch, "present") == ["1", "2"]


def topology():
    ch = channel()
    ch.exchange_declare("rest", exchange_type="fanout")
    ch.exchange_declare("main", exchange_type="direct", arguments={"alternate-exchange": "rest"})
    ch.exchange_declare("inner", exchange_type="topic", internal=True)
    ch.queue_declare("rest")
    ch.queue_declare("inner")
    ch.queue_bind("rest", "rest")
    ch.queue_bind("inner", "inner", routing_key="a.#")
    ch.exchange_bind("inner", "main", routing_key="a.b")
    ch.basic_publish("main", "a.b", "inner")
    ch.basic_publish("main", "nowhere", "rest")
    assert (drain(ch, "inner"), drain(ch, "rest")) == (["inner"], ["rest"])
    ch.exchange_unbind("inner", "main", routing_key="a.b")
    ch.basic_publish("main", "a.b", "rest")
    assert (drain(ch, "inner"), drain(ch, "rest")) == ([], ["rest"])
    ch.exchange_declare("brief", exchange_type="fanout", auto_delete=True)
    ch.queue_bind("rest", "brief")
    ch.queue_unbind("rest", "brief")
    refused(404, "no exchange 'brief' in vhost '/'", lambda ch: ch.exchange_declare("brief", passive=True))
    refused(403, "internal exchange", lambda ch: (ch.basic_publish("inner", "a", ""), ch.queue_declare("rest", passive=True)))
    ch.exchange_declare("ring", exchange_type="x-consistent-hash")
    for q in ("ring-1", "ring-2"):
        ch.queue_declare(q)
        ch.queue_bind(q, "ring", routing_key="10")
    for n in range(200):
        ch.basic_publish("ring", f"device.{n}", "x")
    shares = ready(ch, "ring-1"), ready(ch, "ring-2")
    assert sum(shares) == 200 and min(shares) > 50, shares


def dead_letters():
    ch = channel()
    ch.exchange_declare("dlx", exchange_type="fanout")
    ch.queue_declare("dead")
    ch.queue_bind("dead", "dlx")
    arguments = {"x-dead-letter-exchange": "dlx", "x-message-ttl": 200, "x-max-length": 2}
    ch.queue_declare("short", arguments=arguments)
    for n in range(3):
        ch.basic_publish("", "short", f"m{n}", P(headers={"kept": n}, expiration="60000"))
    method, _, _ = ch.basic_get("short")
    ch.basic_reject(method.delivery_tag, requeue=False)
    wait_ready(ch, "dead", 3)
    reasons = {}
    for _ in range(3):
        method, properties, body = ch.basic_get("dead", auto_ack=True)
        death = properties.headers["x-death"][0]
        assert (death["queue"], death["exchange"], death["count"]) == ("short", "", 1)
        assert death["routing-keys"] == ["short"] and death["original-expiration"] == "60000"
        assert properties.headers["x-first-death-queue"] == "short"
        assert properties.headers["kept"] == int(body.decode()[1:]) and properties.expiration is None
        assert (method.exchange, method.routing_key) == ("dlx", "short")
        reasons[body.decode()] = death["reason"]
    assert reasons == {"m0": "maxlen", "m1": "rejected", "m2": "expired"}, reasons
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-delivery-limit": 2}
    ch.queue_declare("poison", arguments=arguments)
    ch.basic_publish("", "poison", "p")
    for attempt in range(3):
        method, properties, _ = ch.basic_get("poison")
        assert (properties.headers or {}).get("x-delivery-count", 0) == attempt
        ch.basic_nack(method.delivery_tag, requeue=True)
    _, properties, _ = ch.basic_get("dead", auto_ack=True)
    assert properties.headers["x-death"][0]["reason"] == "delivery_limit"


def times():
    ch = channel()
    ch.queue_declare("ttl")
    ch.basic_publish("", "ttl", "gone", P(expiration="50"))
    ch.basic_publish("", "ttl", "stays")
    time.sleep(0.3)
    assert drain(ch, "ttl") == ["stays"]
    ch.exchange_declare("later", exchange_type="x-delayed-message", arguments={"x-delayed-type": "direct"})
    ch.queue_declare("delayed")
    ch.queue_bind("delayed", "later", routing_key="k")
    for body, delay in [("b", 400), ("a", 150), ("now", 0)]:
        ch.basic_publish("later", "k", body, P(headers={"x-delay": delay}))
    assert drain(ch, "delayed") == ["now"]
    wait_ready(ch, "delayed", 2)
    assert drain(ch, "delayed") == ["a", "b"]
    ch.queue_declare("brief", arguments={"x-expires": 200})
    time.sleep(0.6)
    refused(404, "no queue 'brief'", lambda ch: ch.queue_declare("brief", passive=True))


def consumers():
    ch, other = channel(), channel()
    ch.queue_declare("prio", arguments={"x-max-priority": 10})
    for priority, body in [(0, "low"), (9, "high"), (5, "middle")]:
        ch.basic_publish("", "prio", body, P(priority=priority))
    assert drain(ch, "prio") == ["high", "middle", "low"]
    ch.queue_declare("sac", arguments={"x-single-active-consumer": True})
    first, second = [], []
    ch.basic_consume("sac", lambda *d: first.append(d[3]), auto_ack=True)
    other.basic_consume("sac", lambda *d: second.append(d[3]), auto_ack=True)
    for n in range(4):
        ch.basic_publish("", "sac", str(n))
    until(ch.connection, lambda: len(first) == 4)
    other.connection.process_data_events(0.1)
    assert (len(first), second) == (4, [])
    ch.close()
    other.basic_publish("", "sac", "5")
    until(other.connection, lambda: second)
    assert second == [b"5"]
    one = channel()
    one.queue_declare("mine")
    one.basic_consume("mine", lambda *_: None, exclusive=True)
    refused(403, "in exclusive use", lambda ch: ch.basic_consume("mine", lambda *_: None))
    cancelled = []
    one.add_on_cancel_callback(cancelled.append)
    channel().queue_delete("mine")
    until(one.connection, lambda: cancelled)
    assert len(cancelled) == 1
    low, high = channel(), channel()
    low.queue_declare("ranked")
    took = []
    low.basic_consume("ranked", lambda *_: took.append("low"), auto_ack=True)
    high.basic_consume("ranked", lambda *_: took.append("high"), auto_ack=True, arguments={"x-priority": 5})
    low.basic_publish("", "ranked", "x")
    until(high.connection, lambda: took)
    low.connection.process_data_events(0.1)
    assert took == ["high"], took


def transactions():
    ch, watch = channel(), channel()
    ch.tx_select()
    ch.queue_declare("tx", durable=True)
    ch.basic_publish("", "tx", "rolled back", PERSISTENT)
    ch.tx_rollback()
    ch.basic_publish("", "tx", "a", PERSISTENT)
    ch.basic_publish("", "tx", "b", PERSISTENT)
    assert ready(watch, "tx") == 0
    ch.tx_commit()
    assert ready(watch, "tx") == 2
    method, _, _ = ch.basic_get("tx")
    ch.basic_ack(method.delivery_tag)
    ch.tx_rollback()
    ch.basic_ack(method.delivery_tag)
    ch.tx_commit()
    ch.close()
    assert drain(watch, "tx") == ["b"]
    refused(406, "not transactional", lambda ch: ch.tx_commit())


def requests():
    server, client = channel(), channel()
    server.queue_declare("rpc")
    answers = []
    client.basic_consume("amq.rabbitmq.reply-to", lambda *d: answers.append(d[3]), auto_ack=True)
    client.basic_publish("", "rpc", "ping", P(reply_to="amq.rabbitmq.reply-to", correlation_id="1"))
    _, properties, body = collect(server, "rpc", 1)[0]
    assert properties.reply_to.startswith("amq.rabbitmq.reply-to.")
    server.basic_publish("", properties.reply_to, body + b"-pong")
    until(client.connection, lambda: answers)
    assert answers == [b"ping-pong"]
    ch = channel()
    for q in ("to", "cc", "bcc"):
        ch.queue_declare(q)
    ch.basic_publish("", "to", "x", P(headers={"CC": ["cc"], "BCC": ["bcc"]}))
    for q in ("to", "cc", "bcc"):
        _, properties, _ = ch.basic_get(q, auto_ack=True)
        assert properties.headers == {"CC": ["cc"]}
    ch.basic_publish("", "to", "x", P(user_id="guest"))
    assert drain(ch, "to") == ["x"]


def sizes():
    small = channel(frame_max=4096)
    small.queue_declare("big")
    small.confirm_delivery()
    body = bytes(range(256)) * 4000
    small.basic_publish("", "big", body, P(headers={"n": 1, "t": {"deep": [1, "two", None]}}))
    small.basic_publish("", "big", b"")
    for ch in (channel(), small):
        method, properties, got = ch.basic_get("big")
        assert got == body and properties.headers == {"n": 1, "t": {"deep": [1, "two", None]}}
        ch.basic_nack(method.delivery_tag)
        time.sleep(0.1)
    method, _, _ = small.basic_get("big", auto_ack=True)
    assert small.basic_get("big", auto_ack=True)[2] == b""
    refused(406, "larger than configured max size", lambda ch: (ch.basic_publish("", "big", b"x" * (3 << 20)), ch.queue_declare("big", passive=True)))


def mistakes():
    ch = channel()
    ch.queue_declare("there", durable=True)
    ch.exchange_declare("there", exchange_type="direct")
    owner = channel()
    owner.queue_declare("locked", exclusive=True)

    def declare(name, **more):
        return lambda ch: ch.queue_declare(name, **more)

    def publish(exchange, **properties):
        return lambda ch: (ch.basic_publish(exchange, "k", "", P(**properties)), ch.queue_declare("there", passive=True))

    note = {"x-note": "n" * 5000}
    too_large = "arguments are larger than 4096 bytes"

    for code, text, act in [
        (406, too_large, declare("noted", arguments=note)),
        (406, too_large, lambda ch: ch.exchange_declare("noted", exchange_type="fanout", arguments=note)),
        (406, too_large, lambda ch: ch.queue_bind("there", "there", "k", arguments=note)),
        (406, too_large, lambda ch: ch.exchange_bind("there", "amq.fanout", "k", arguments=note)),
        (404, "no queue 'missing' in vhost '/'", declare("missing", passive=True)),
        (404, "no exchange 'missing' in vhost '/'", publish("missing")),
        (404, "no queue 'missing'", lambda ch: ch.basic_get("missing")),
        (404, "no queue 'missing'", lambda ch: ch.queue_purge("missing")),
        (404, "no exchange 'missing'", lambda ch: ch.queue_bind("there", "missing")),
        (405, "locked queue 'locked'", declare("locked", passive=True)),
        (405, "locked queue 'locked'", lambda ch: ch.basic_consume("locked", print)),
        (403, "reserved prefix", declare("amq.mine")),
        (403, "topic '$SYS.x'", declare("dying", arguments={"x-dead-letter-exchange": "amq.topic", "x-dead-letter-routing-key": "$SYS.x"})),
        (403, "reserved prefix", lambda ch: ch.exchange_declare("amq.mine", exchange_type="direct")),
        (403, "deletion of system exchange", lambda ch: ch.exchange_delete("amq.topic")),
        (403, "default exchange", lambda ch: ch.queue_bind("there", "")),
        (406, "inequivalent arg 'durable' for queue 'there' in vhost '/'", declare("there")),
        (406, "inequivalent arg 'x-max-length'", declare("there", durable=True, arguments={"x-max-length": 5})),
        (406, "inequivalent arg 'type' for exchange 'there'", lambda ch: ch.exchange_declare("there", exchange_type="fanout")),
        (406, "x-message-ttl", declare("bad", arguments={"x-message-ttl": -1})),
        (406, "x-max-length", declare("bad", arguments={"x-max-length": "many"})),
        (406, "x-queue-type", declare("bad", arguments={"x-queue-type": "stream"})),
        (406, "x-consumer-timeout", declare("bad", arguments={"x-consumer-timeout": 1})),
        (406, "routing_key_but_no_dlx_defined", declare("bad", arguments={"x-dead-letter-routing-key": "k"})),
        (406, "invalid expiration", publish("", expiration="soon")),
        (406, "user_id property set to 'other'", publish("", user_id="other")),
        (406, "in use", lambda ch: (ch.queue_bind("there", "there"), ch.exchange_delete("there", if_unused=True))),
        (406, "not empty", lambda ch: (ch.basic_publish("", "there", ""), ch.queue_delete("there", if_empty=True))),
        (406, "unknown delivery tag 9", lambda ch: (ch.basic_ack(9), ch.queue_declare("there", passive=True))),
        (406, "fast reply consumer", publish("", reply_to="amq.rabbitmq.reply-to")),
        (406, "cannot switch from confirm to tx", lambda ch: (ch.confirm_delivery(), ch.tx_select())),
    ]:
        refused(code, text, act)
    for code, act in [
        (540, lambda ch: ch.basic_qos(prefetch_size=1)),
        (540, lambda ch: ch.flow(False)),
        (530, lambda ch: [ch.basic_consume("there", print, consumer_tag="t"), other_tag(ch)]),
    ]:
        conn = connect()
        try:
            act(conn.channel())
            raise AssertionError(code)
        except pika.exceptions.ConnectionClosedByBroker as closed:
            assert closed.reply_code == code, closed
    try:
        connect(credentials=pika.PlainCredentials("guest", "wrong"))
        raise AssertionError("a wrong password was taken")
    except pika.exceptions.ProbableAuthenticationError as error:
        assert "ACCESS_REFUSED" in str(error), error
    try:
        connect(virtual_host="other")
        raise AssertionError("an unknown virtual host was taken")
    except pika.exceptions.ProbableAccessDeniedError as error:
        assert "530" in str(error), error
    assert ready(ch, "there") == 1


def other_tag(ch):
    """The same consumer tag again, past the client's own check."""
    ch._impl._consumers.pop("t", None)
    ch._impl._send_method(pika.spec.Basic.Consume(queue="there", consumer_tag="t"))
    ch.queue_declare("there", passive=True)


def blocked():
    """A publisher that is faster than the flash's budget is told so, and when it may go on; nothing is lost."""
    conn = connect()
    ch = conn.channel()
    told = []
    conn.add_on_connection_blocked_callback(lambda _, frame: told.append(frame.method.reason))
    conn.add_on_connection_unblocked_callback(lambda _, frame: told.append("unblocked"))
    ch.queue_declare("heavy", durable=True, arguments={"x-max-length-bytes": 60_000_000})
    body = b"x" * 1_000_000
    for _ in range(30):
        ch.basic_publish("", "heavy", body, PERSISTENT)
    until(conn, lambda: told[-1:] == ["unblocked"])
    assert told[:2] == ["the flash must catch up", "unblocked"], told
    wait_ready(ch, "heavy", 30)


def asked_for():
    """Who only asks for messages is not told that publishes wait, though the queue's rows must be read from flash first."""
    ch = channel()
    ch.queue_declare("long", durable=True)
    ch.confirm_delivery()
    body = "x" * 40_000
    for number in range(400):
        ch.basic_publish("", "long", f"{number} {body}".encode(), PERSISTENT)
    conn = connect()
    told = []
    conn.add_on_connection_blocked_callback(lambda _, frame: told.append(frame.method.reason))
    found = [text.split()[0] for text in drain(conn.channel(), "long")]
    conn.process_data_events(0.2)
    assert found == [str(number) for number in range(400)], len(found)
    assert told == [], told


run({
    "asked_for": asked_for,
    "blocked": blocked,
    "headers": headers,
    "topology": topology,
    "dead-letters": dead_letters,
    "times": times,
    "consumers": consumers,
    "transactions": transactions,
    "requests": requests,
    "sizes": sizes,
    "mistakes": mistakes,
})
