"""MQTT over WebSocket by paho. Arguments: host, port, CA or "-"."""

import queue
import ssl
import sys

import paho.mqtt.client as mqtt

host, port, ca = sys.argv[3], int(sys.argv[4]), sys.argv[5]
got = queue.Queue()


def client(name):
    made = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, transport="websockets")
    made.ws_set_options(path="/mqtt")
    if ca != "-":
        made.tls_set_context(ssl.create_default_context(cafile=ca))
    made.connect(host, port, keepalive=30)
    made.loop_start()
    return made


subscriber = client("ws-subscriber")
subscribed = queue.Queue()
subscriber.on_message = lambda _c, _u, message: got.put((message.topic, message.payload))
subscriber.on_subscribe = lambda *_: subscribed.put(True)
subscriber.subscribe("ws/#", qos=1)
subscribed.get(timeout=20)

publisher = client("ws-publisher")
bodies = [b"", b"small", b"x" * 125, b"y" * 126, b"z" * 65_535, b"w" * 300_000]
for at, body in enumerate(bodies):
    publisher.publish(f"ws/{at}", body, qos=at % 3).wait_for_publish(20)
for at, body in enumerate(bodies):
    topic, payload = got.get(timeout=20)
    assert (topic, payload) == (f"ws/{at}", body), (topic, len(payload))
print("ok", len(bodies))
for one in (publisher, subscriber):
    one.disconnect()
    one.loop_stop()
