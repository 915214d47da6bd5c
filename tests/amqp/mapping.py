"""Properties and headers between MQTT 5 and AMQP 0-9-1, each side by a stock client: paho and pika. Arguments: host, AMQP
port, step, MQTT port. What is expected is what RabbitMQ documents (docs/conversions.md of its site); where its page is
silent, what its source does."""

import decimal
import sys
import threading
from datetime import datetime, timezone

import paho.mqtt.client as mqtt
import pika
from common import HOST, channel, collect, drain, ready, run, wait_ready
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

P = pika.BasicProperties


class Mqtt:
    """A client of version 5 whose callbacks are waited for."""

    def __init__(self, name):
        self.messages, self.arrived, self.acknowledged = [], threading.Semaphore(0), threading.Semaphore(0)
        self.c = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=mqtt.MQTTv5)
        self.c.on_message = self.on_message
        self.c.on_publish = lambda *_: self.acknowledged.release()
        self.c.on_subscribe = lambda *_: self.acknowledged.release()
        joined = threading.Event()
        self.c.on_connect = lambda *_: joined.set()
        self.c.connect(HOST, int(sys.argv[4]))
        self.c.loop_start()
        assert joined.wait(20)

    def on_message(self, _client, _userdata, message):
        self.messages.append(message)
        self.arrived.release()

    def subscribe(self, topic, qos=1):
        self.c.subscribe(topic, qos)
        assert self.acknowledged.acquire(timeout=20)

    def publish(self, topic, payload, qos=1, retain=False, **given):
        properties = Properties(PacketTypes.PUBLISH)
        for key, value in given.items():
            setattr(properties, key, value)
        self.c.publish(topic, payload, qos, retain, properties)
        assert self.acknowledged.acquire(timeout=20)

    def message(self):
        assert self.arrived.acquire(timeout=20), "no message came"
        return self.messages.pop(0)


def queue_of(ch, key):
    name = ch.queue_declare("", exclusive=True).method.queue
    ch.queue_bind(name, "amq.topic", key)
    return name


def to_amqp(_mqtt_port):
    ch, device = channel(), Mqtt("device")
    queue = queue_of(ch, "m.#")

    def sent(topic="m/a", payload="x", qos=1, retain=False, **given):
        device.publish(topic, payload, qos, retain, **given)
        [(method, properties, body)] = collect(ch, queue, 1, auto_ack=True)
        ch.cancel()
        return method, properties, body

    # The topic is the routing key, the payload is bytes, and what nobody gave is absent.
    method, p, body = sent("m/b/c", b"\x00\xff\x01")
    assert (method.exchange, method.routing_key, body) == ("amq.topic", "m.b.c", b"\x00\xff\x01")
    assert (p.delivery_mode, p.headers, p.content_type, p.correlation_id, p.expiration) == (2, None, None, None, None)
    assert (p.priority, p.timestamp, p.reply_to, p.content_encoding, p.type, p.message_id) == (None,) * 6
    # A dot inside a level comes as a slash, and goes back as a dot.
    assert sent("m/v1.2/x")[0].routing_key == "m.v1/2.x"

    # QoS and delivery mode; whether it is retained is not told.
    assert [sent(qos=qos)[1].delivery_mode for qos in (0, 1, 2)] == [1, 2, 2]
    retained = sent("m/kept", retain=True)[1]
    assert (retained.delivery_mode, retained.headers) == (2, None)
    sent("m/kept", "", retain=True)

    # Content type: a short string, or none.
    assert sent(ContentType="application/json")[1].content_type == "application/json"
    assert sent(ContentType="t" * 255)[1].content_type == "t" * 255
    assert sent(ContentType="t" * 256)[1].content_type is None
    # The payload format says nothing that AMQP could say.
    p = sent(PayloadFormatIndicator=1)[1]
    assert (p.content_type, p.content_encoding, p.headers) == (None, None, None)

    # Correlation data: correlation-id when it is a short string, else a header with the same bytes.
    p = sent(CorrelationData=b"request 7")[1]
    assert (p.correlation_id, p.headers) == ("request 7", None)
    for data in (b"\xff\xfe", b"a\x00b", b"c" * 256):
        p = sent(CorrelationData=data)[1]
        header = p.headers["x-correlation-id"]
        assert p.correlation_id is None, p
        assert (header if isinstance(header, bytes) else header.encode()) == data, header

    # The response topic is a routing key in a header; reply-to would be a queue.
    p = sent(ResponseTopic="answers/v1.2/me")[1]
    assert (p.reply_to, p.headers) == (None, {"x-reply-to-topic": "answers.v1/2.me"})

    # User properties: strings, sorted, of one name the last; names of AMQP's field tables have up to 128 bytes.
    pairs = [("site", "first"), ("b", "2"), ("x-opt-floor", "3"), ("Ü", "ö"), ("site", "last"), ("n" * 129, "no"), ("e", "")]
    headers = sent(UserProperty=pairs)[1].headers
    assert list(headers.items()) == [("b", "2"), ("e", ""), ("site", "last"), ("x-opt-floor", "3"), ("Ü", "ö")], headers

    # A content header is one frame: headers that are more than a frame are left out, and nothing else is.
    p = sent(ContentType="text/plain", UserProperty=[(name, "v" * 60000) for name in "abc"])[1]
    assert (p.headers, p.content_type, p.delivery_mode) == (None, "text/plain", 2)

    # Expiry: seconds there, a string of milliseconds here.
    assert sent(MessageExpiryInterval=60)[1].expiration == "60000"
    assert sent(MessageExpiryInterval=4294967295)[1].expiration == "4294967295000"
    # It expires in a queue, too.
    device.publish("m/brief", "x", MessageExpiryInterval=1)
    wait_ready(ch, queue, 0)


def to_mqtt(_mqtt_port):
    ch, device = channel(), Mqtt("device")
    ch.confirm_delivery()
    device.subscribe("m/#", qos=2)

    def sent(key="m.a", body="x", **given):
        ch.basic_publish("amq.topic", key, body, P(**given))
        return device.message()

    def user(headers):
        return getattr(sent(headers=headers).properties, "UserProperty", [])

    # The routing key is the topic, the body is bytes, and what nobody gave is absent.
    m = sent("m.b.c", b"\x00\xff\x01")
    assert (m.topic, m.payload, m.retain) == ("m/b/c", b"\x00\xff\x01", False)
    assert m.properties.isEmpty(), m.properties
    assert sent("m.v1/2.x").topic == "m/v1.2/x"

    # Delivery mode and QoS: without one a message is transient. Priorities, times and names stay in AMQP.
    assert [sent(delivery_mode=mode).qos for mode in (None, 1, 2)] == [0, 0, 1]
    m = sent(priority=7, timestamp=1700000000, message_id="id", app_id="app", type="t", reply_to="q", content_encoding="gzip")
    assert m.properties.isEmpty(), m.properties

    # Content type, correlation-id and the two published headers.
    m = sent(content_type="text/plain", correlation_id="id 7", headers={"x-reply-to-topic": "answers.v1/2.me"})
    p = m.properties
    assert (p.ContentType, p.CorrelationData, p.ResponseTopic) == ("text/plain", b"id 7", "answers/v1.2/me")
    assert not hasattr(p, "UserProperty") and not hasattr(p, "PayloadFormatIndicator")
    # A response topic must be a topic name.
    assert sent(headers={"x-reply-to-topic": "answers.#"}).properties.isEmpty()
    # correlation-id goes before the header.
    p = sent(headers={"x-correlation-id": "from a header"}).properties
    assert p.CorrelationData == b"from a header" and not hasattr(p, "UserProperty")
    assert sent(correlation_id="own", headers={"x-correlation-id": "h"}).properties.CorrelationData == b"own"

    # Headers: what is a string, a number or a truth value is text; nothing is the empty text.
    assert user({"text": "täxt", "x-opt-kind": "k"}) == [("text", "täxt"), ("x-opt-kind", "k")]
    assert user({"i": -7, "big": 1 << 40, "yes": True, "no": False}) == [
        ("i", "-7"), ("big", "1099511627776"), ("yes", "true"), ("no", "false")]
    assert user({"void": None}) == [("void", "")]
    assert user({"when": datetime(2026, 1, 2, tzinfo=timezone.utc)}) == [("when", "1767312000")]
    # Tables, arrays, decimals, and bytes that are marked as such have no text; the others beside them have.
    assert user({"table": {"a": 1}, "array": [1, 2], "bytes": b"\xff", "decimal": decimal.Decimal("1.5"), "ok": "k"}) == [("ok", "k")]
    assert user({"nul": "a\0b", "ok": "k"}) == [("ok", "k")]

    # Expiration: a string of milliseconds here, seconds that are left there.
    p = sent(expiration="60000").properties
    assert p.MessageExpiryInterval in (59, 60), p
    assert sent(expiration="1500").properties.MessageExpiryInterval in (1, 2)


def rpc(_mqtt_port):
    """A request from each side is answered by the other: what says where and which goes there and back unchanged."""
    ch, device = channel(), Mqtt("device")
    ch.confirm_delivery()
    requests, answers = queue_of(ch, "requests.#"), queue_of(ch, "answers.worker")
    device.subscribe("answers/device")
    device.publish("requests/add", "1 2", ResponseTopic="answers/device", CorrelationData=b"\x00\xff 7", UserProperty=[("k", "v")])
    [(_, p, body)] = collect(ch, requests, 1, auto_ack=True)
    ch.cancel()
    assert body == b"1 2"
    headers = {"x-correlation-id": p.headers["x-correlation-id"]}
    # pika marks bytes as a byte array; both forms come back as correlation data.
    ch.basic_publish("amq.topic", p.headers["x-reply-to-topic"], "3", P(headers=headers, delivery_mode=2))
    answer = device.message()
    assert (answer.payload, answer.properties.CorrelationData) == (b"3", b"\x00\xff 7"), answer.properties

    device.subscribe("requests/sub")
    ch.basic_publish("amq.topic", "requests.sub", "3 1", P(correlation_id="c 1", headers={"x-reply-to-topic": "answers.worker"}))
    request = device.message()
    p = request.properties
    device.publish(p.ResponseTopic, "2", CorrelationData=p.CorrelationData)
    [(_, p, body)] = collect(ch, answers, 1, auto_ack=True)
    assert (p.correlation_id, body) == ("c 1", b"2")


def exchanges(_mqtt_port):
    """Exchanges behind amq.topic route messages of MQTT by their user properties and their correlation data."""
    ch, device = channel(), Mqtt("device")
    ch.exchange_declare("by-headers", "headers")
    ch.exchange_bind("by-headers", "amq.topic", "plant.#")
    for name, arguments in [
        ("all", {"x-match": "all", "site": "a", "kind": "alarm"}),
        ("any", {"x-match": "any", "site": "b", "kind": "alarm"}),
        ("there", {"site": None}),
        ("with-x", {"x-match": "all-with-x", "x-floor": "2"}),
        ("without-x", {"x-match": "all", "site": "a", "x-floor": "ignored"}),
    ]:
        ch.queue_declare(name)
        ch.queue_bind(name, "by-headers", arguments=arguments)
    for body, pairs in [
        ("1", [("site", "a"), ("kind", "alarm")]),
        ("2", [("site", "a")]),
        ("3", [("site", "b"), ("x-floor", "2")]),
        ("4", []),
        # Of two with one name the last counts, as in the headers that a consumer sees.
        ("5", [("site", "c"), ("site", "a"), ("kind", "alarm")]),
    ]:
        device.publish("plant/pump", body, UserProperty=pairs)
    assert drain(ch, "all") == ["1", "5"]
    assert drain(ch, "any") == ["1", "3", "5"]
    assert drain(ch, "there") == ["1", "2", "3", "5"]
    assert drain(ch, "with-x") == ["3"]
    assert drain(ch, "without-x") == ["1", "2", "5"]

    ch.exchange_declare("ring", "x-consistent-hash", arguments={"hash-property": "correlation_id"})
    ch.exchange_bind("ring", "amq.topic", "jobs.#")
    for name in ("ring-1", "ring-2"):
        ch.queue_declare(name)
        ch.queue_bind(name, "ring", "10")
    for turn in range(3):
        for n in range(40):
            # Half of them are no text: they are hashed as well as the others.
            data = f"device {n}".encode() if n % 2 else bytes([0xFF, n])
            device.publish(f"jobs/{turn}", str(n), CorrelationData=data)
    one, two = drain(ch, "ring-1"), drain(ch, "ring-2")
    assert len(one) + len(two) == 120 and min(len(one), len(two)) > 15, (len(one), len(two))
    assert not set(one) & set(two), "the same correlation data went to both"
    assert ready(ch, "ring-1") == 0


run({"to-amqp": to_amqp, "to-mqtt": to_mqtt, "rpc": rpc, "exchanges": exchanges})
