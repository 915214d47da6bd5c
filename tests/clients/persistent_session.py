"""The steps of a worker whose persistent session outlives the broker's process. Arguments: host, port, step."""

import sys
import threading

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

HOST, PORT, STEP = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def client(client_id, clean):
    return mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=clean)


def subscribe():
    c = client("cold-room-worker", False)

    def on_connect(c, userdata, flags, reason, properties):
        print(f"CONNACK rc={reason} session_present={flags.session_present}")
        c.subscribe("plant/+/alarm", qos=1)

    def on_subscribe(c, userdata, mid, reasons, properties):
        print(f"SUBACK granted={[reason.value for reason in reasons]}")
        c.disconnect()

    c.on_connect, c.on_subscribe = on_connect, on_subscribe
    c.connect(HOST, PORT)
    c.loop_forever()


def publish():
    p = client("probe-17", True)
    p.connect(HOST, PORT)
    p.loop_start()
    readings = [
        ("plant/room1/alarm", '{"seq": 1, "temp_c": -12.5}'),
        ("plant/room2/alarm", '{"seq": 2, "temp_c": -3.1}'),
        ("plant/room1/alarm", '{"seq": 3, "temp_c": 4.8}'),
    ]
    for topic, payload in readings:
        info = p.publish(topic, payload, qos=1)
        info.wait_for_publish(10)
        assert info.is_published()
        print(f"PUBACK mid={info.mid} topic={topic}")
    info = p.publish("plant/status", "online", qos=1, retain=True)
    info.wait_for_publish(10)
    assert info.is_published()
    print(f"PUBACK mid={info.mid} topic=plant/status (retained)")
    p.disconnect()
    p.loop_stop()


def receive(c, wanted, timeout, show):
    """Prints messages until `wanted` have come or `timeout` seconds have passed."""
    done = threading.Event()
    seen = []

    def on_message(c, userdata, message):
        print(show(message))
        seen.append(message)
        if len(seen) == wanted:
            done.set()

    c.on_message = on_message
    c.connect(HOST, PORT)
    c.loop_start()
    done.wait(timeout)
    c.disconnect()
    c.loop_stop()


def resume():
    c = client("cold-room-worker", False)
    c.on_connect = lambda c, userdata, flags, reason, properties: print(
        f"CONNACK rc={reason} session_present={flags.session_present}"
    )
    # A fourth message would be one too many: wait a moment for it.
    receive(
        c,
        4,
        2,
        lambda m: f"PUBLISH topic={m.topic} qos={m.qos} dup={int(m.dup)} payload={m.payload.decode()}",
    )


def dashboard():
    c = client("dashboard", True)
    c.on_connect = lambda c, userdata, flags, reason, properties: c.subscribe("plant/status", qos=1)
    receive(c, 1, 10, lambda m: f"PUBLISH topic={m.topic} retain={int(m.retain)} payload={m.payload.decode()}")


{"subscribe": subscribe, "publish": publish, "resume": resume, "dashboard": dashboard}[STEP]()
