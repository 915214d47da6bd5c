"""Numbered messages for an offline session. Arguments: host, port, then one of: subscribe ID | publish FROM TO | receive ID."""

import sys
import time

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

HOST, PORT, STEP, ARGUMENTS = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]


def client(client_id, clean):
    return mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=clean)


if STEP == "subscribe":
    c = client(ARGUMENTS[0], False)
    c.on_connect = lambda c, userdata, flags, reason, properties: c.subscribe("numbers", qos=1)
    c.on_subscribe = lambda *arguments: c.disconnect()
    c.connect(HOST, PORT)
    c.loop_forever()
elif STEP == "publish":
    c = client("source", True)
    c.connect(HOST, PORT)
    c.loop_start()
    sent = [c.publish("numbers", str(number), qos=1) for number in range(int(ARGUMENTS[0]), int(ARGUMENTS[1]))]
    for info in sent:
        info.wait_for_publish(10)
        assert info.is_published()
    c.disconnect()
    c.loop_stop()
elif STEP == "receive":
    c = client(ARGUMENTS[0], False)
    c.on_message = lambda c, userdata, message: print(message.payload.decode())
    c.connect(HOST, PORT)
    c.loop_start()
    # Long enough for everything that will come.
    time.sleep(2)
    c.disconnect()
    c.loop_stop()
else:
    sys.exit(f"no step {STEP}")
