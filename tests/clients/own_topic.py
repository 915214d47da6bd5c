"""Subscribes to one topic, publishes to it, prints what comes back. Arguments: host, port, user, password, client id, topic."""

import sys

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

HOST, PORT, USER, PASSWORD, CLIENT_ID, TOPIC = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]

c = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=CLIENT_ID)
c.username_pw_set(USER, PASSWORD)


def on_message(c, userdata, message):
    print(message.topic)
    c.disconnect()


c.on_connect = lambda c, userdata, flags, reason, properties: c.subscribe(TOPIC, qos=1)
c.on_subscribe = lambda c, userdata, mid, reasons, properties: c.publish(TOPIC, "x", qos=1)
c.on_message = on_message
c.connect(HOST, PORT)
c.loop_forever()
