"""The rules of an ACL file as AMQP clients meet them. User `worker` has password `w` and, as the test wrote its rules:

    queue configure|write|read tasks.*
    queue deny tasks.secret
    queue read alarms
    exchange write logs
    exchange own.*
    topic read sensors/#
    topic deny sensors/hidden
    topic write commands/#

User `chief` may do everything that the script needs."""

import pika
from common import HOST, PORT, channel, drain, ready, refused, run, until, wait_ready


def as_user(name, password):
    return {"credentials": pika.PlainCredentials(name, password)}


WORKER, CHIEF = as_user("worker", "w"), as_user("chief", "c")


def rules():
    chief = channel(**CHIEF)
    chief.queue_declare("alarms", durable=True)
    chief.queue_declare("tasks.secret")
    chief.exchange_declare("logs", exchange_type="fanout")

    def worker():
        return channel(**WORKER)

    ch = worker()
    ch.queue_declare("tasks.own", arguments={"x-dead-letter-exchange": "logs"})
    ch.basic_publish("", "tasks.own", "x")
    assert drain(ch, "tasks.own") == ["x"]
    ch.basic_publish("logs", "", "x")
    assert drain(ch, "alarms") == []
    ch.queue_bind("tasks.own", "amq.topic", "sensors.*.temp")
    assert ready(ch, "tasks.secret") == 0
    publish = lambda exchange, key: lambda ch: (ch.basic_publish(exchange, key, "x"), ch.queue_declare("alarms", passive=True))
    for text, act in [
        ("configure access to queue 'other'", lambda ch: ch.queue_declare("other")),
        ("configure access to queue 'amq.gen-'", lambda ch: ch.queue_declare("")),
        ("configure access to queue 'alarms'", lambda ch: ch.queue_delete("alarms")),
        ("read access to queue 'tasks.secret'", lambda ch: ch.basic_get("tasks.secret")),
        ("read access to queue 'tasks.secret'", lambda ch: ch.basic_consume("tasks.secret", print)),
        ("read access to queue 'tasks.secret'", lambda ch: ch.queue_purge("tasks.secret")),
        ("write access to queue 'alarms'", publish("", "alarms")),
        ("write access to queue 'alarms'", lambda ch: ch.queue_bind("alarms", "amq.topic", "sensors.#")),
        ("read access to exchange 'logs'", lambda ch: ch.queue_bind("tasks.own", "logs")),
        ("configure access to exchange 'logs'", lambda ch: ch.exchange_delete("logs")),
        ("write access to exchange 'amq.fanout'", publish("amq.fanout", "")),
        ("write access to exchange 'amq.fanout'", lambda ch: ch.queue_declare("tasks.b", arguments={"x-dead-letter-exchange": "amq.fanout"})),
        ("write access to topic 'sensors.a'", publish("amq.topic", "sensors.a")),
        ("read access to topic 'commands.#'", lambda ch: ch.queue_bind("tasks.own", "amq.topic", "commands.#")),
    ]:
        refused(403, text, act, on=worker())
    assert ready(chief, "alarms") == 0


def withheld():
    """What the rules keep from a client is not delivered, though its binding takes it."""
    ch, chief = channel(**WORKER), channel(**CHIEF)
    ch.queue_declare("tasks.sensors")
    ch.queue_bind("tasks.sensors", "amq.topic", "sensors.#")
    chief.confirm_delivery()
    for topic in ["sensors.a", "sensors.hidden", "sensors.b", "sensors.hidden", "sensors.c"]:
        chief.basic_publish("amq.topic", topic, topic)
    taken = []
    ch.basic_qos(prefetch_count=1)
    ch.basic_consume("tasks.sensors", lambda ch, m, _, body: (taken.append(body.decode()), ch.basic_ack(m.delivery_tag)))
    until(ch.connection, lambda: len(taken) == 3)
    assert taken == ["sensors.a", "sensors.b", "sensors.c"], taken
    ch.cancel()
    chief.basic_publish("amq.topic", "sensors.hidden", "x")
    assert channel(**WORKER).basic_get("tasks.sensors")[0] is None


def secret():
    """A new secret is checked: a wrong one ends the connection."""
    conn = pika.BlockingConnection(pika.ConnectionParameters(HOST, PORT, **WORKER))
    ch = conn.channel()
    conn.update_secret("w", "still known")
    ch.queue_declare("tasks.renewed")
    try:
        conn.update_secret("wrong", "guessed")
        raise AssertionError("a wrong secret was taken")
    except pika.exceptions.ConnectionClosedByBroker as closed:
        assert closed.reply_code == 530, closed


def crossing():
    """No way into amq.topic goes past the rules about topics."""
    worker, chief = channel(**WORKER), channel(**CHIEF)
    worker.exchange_declare("own.fan", exchange_type="fanout")
    chief.queue_declare("alarms", durable=True)
    for key in ["plant.valve", "commands.#", "$SYS.#"]:
        chief.queue_bind("alarms", "amq.topic", key)
    dying = lambda name, **more: lambda ch: ch.queue_declare(
        name, arguments={"x-message-ttl": 1, "x-dead-letter-exchange": "amq.topic", **{k.replace("_", "-"): v for k, v in more.items()}}
    )
    whole = "write access to exchange 'amq.topic'"
    for text, act in [
        (whole, lambda ch: ch.exchange_bind("amq.topic", "own.fan")),
        (whole, lambda ch: ch.exchange_unbind("amq.topic", "own.fan")),
        (whole, lambda ch: ch.exchange_declare("own.other", arguments={"alternate-exchange": "amq.topic"})),
        (whole, dying("tasks.dying")),
        ("write access to topic 'plant.valve'", dying("tasks.dying", x_dead_letter_routing_key="plant.valve")),
        ("write access to topic '$SYS.gateway.loss'", dying("tasks.dying", x_dead_letter_routing_key="$SYS.gateway.loss")),
    ]:
        refused(403, text, act, on=channel(**WORKER))
    # A topic that may be published is no secret way, and who may publish everything may let it come by any key.
    dying("tasks.late", x_dead_letter_routing_key="commands.late")(worker)
    worker.basic_publish("", "tasks.late", "late")
    wait_ready(chief, "alarms", 1)
    chief.exchange_bind("amq.topic", "own.fan")
    worker.basic_publish("own.fan", "plant.valve", "bound by the chief")
    worker.basic_publish("own.fan", "$SYS.gateway.loss", "forged")
    wait_ready(chief, "alarms", 2)
    worker.basic_publish("own.fan", "commands.end", "end")
    wait_ready(chief, "alarms", 3)
    assert drain(chief, "alarms") == ["late", "bound by the chief", "end"]
    refused(403, whole, lambda ch: ch.exchange_unbind("amq.topic", "own.fan"), on=channel(**WORKER))


run({"rules": rules, "withheld": withheld, "secret": secret, "crossing": crossing})
