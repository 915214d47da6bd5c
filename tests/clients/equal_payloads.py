"""A consumer that acknowledges one of two equal messages. Arguments: host, port, then subscribe or acknowledge-one, -none, -all."""

import sys
import time

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

HOST, PORT, STEP = sys.argv[1], int(sys.argv[2]), sys.argv[3]

c = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="counter", clean_session=False, manual_ack=True)
taken = []


def on_connect(c, userdata, flags, reason, properties):
    print(f"session_present={flags.session_present}")
    if STEP == "subscribe":
        c.subscribe("press/count", qos=1)


def on_message(c, userdata, message):
    print(f"{message.payload.decode()} dup={int(message.dup)}")
    if STEP == "acknowledge-all" or (STEP == "acknowledge-one" and not taken):
        c.ack(message.mid, message.qos)
    taken.append(message)


c.on_connect, c.on_message = on_connect, on_message
c.on_subscribe = lambda *arguments: c.disconnect()
c.connect(HOST, PORT)
if STEP == "subscribe":
    c.loop_forever()
else:
    c.loop_start()
    # Long enough for everything that will come.
    time.sleep(1.5)
    c.disconnect()
    c.loop_stop()
