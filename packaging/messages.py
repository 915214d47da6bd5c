"""Leaves messages with the gateway for an absent worker, or takes them as the worker.

usage: messages.py put|take COUNT
`put` ends when every message is acknowledged; `take` fails unless exactly these come, in order.
"""

import sys
import threading

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

PATIENCE_S = 60
HOST, PORT = "127.0.0.1", 1883


def connected(name, clean, on_message=None):
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=clean)
    client.on_message = on_message
    ready = threading.Event()
    client.on_connect = lambda client, userdata, flags, reason, properties: client.subscribe("job/#", 1) if not clean else ready.set()
    client.on_subscribe = lambda *_: ready.set()
    client.connect(HOST, PORT)
    client.loop_start()
    assert ready.wait(PATIENCE_S), "no CONNACK or SUBACK"
    return client


def put(count):
    worker = connected("worker", clean=False)
    worker.disconnect()
    worker.loop_stop()
    writer = connected("writer", clean=True)
    for n in range(count):
        info = writer.publish("job/x", b"job %d" % n, 1)
        info.wait_for_publish(PATIENCE_S)
        assert info.is_published()


def take(count):
    came, last = [], threading.Event()

    def on_message(client, userdata, message):
        came.append(message.payload)
        if len(came) >= count:
            last.set()

    worker = connected("worker", clean=False, on_message=on_message)
    last.wait(PATIENCE_S)
    worker.disconnect()
    worker.loop_stop()
    assert came == [b"job %d" % n for n in range(count)], came


{"put": put, "take": take}[sys.argv[1]](int(sys.argv[2]))
