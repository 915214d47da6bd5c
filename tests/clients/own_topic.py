"""Subscribes to one topic, publishes to it, prints what comes back. Arguments: port, user, password, client id, topic."""

import sys

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

PORT, USER, PASSWORD, CLIENT_ID, TOPIC = int(sys.argv[1]), *sys.argv[2:]

c = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=CLIENT_ID)
c.username_pw_set(USER, PASSWORD)


def on_message(c, userdata, message):
    print(message.topic)
    c.disconnect()


c.on_connect = lambda c, userdata, flags, reason, properties: c.subscribe(TOPIC, qos=1)
c.on_subscribe = lambda c, userdata, mid, reasons, properties: c.publish(TOPIC, "x", qos=1)
c.on_message = on_message
c.connect("127.0.0.1", PORT)
c.loop_forever()
