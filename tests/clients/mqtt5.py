"""MQTT 5 by paho: properties both ways, a session with an expiry, a message that expires, aliases, a request and its
response, reason codes. Arguments: host, port. Prints one line for each thing that it saw."""

import sys
import threading

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

HOST, PORT = sys.argv[1], int(sys.argv[2])


class Client:
    """A client whose callbacks are waited for."""

    def __init__(self, name, clean=True, **connect_properties):
        self.messages, self.arrived = [], threading.Semaphore(0)
        self.acknowledged, self.reasons = threading.Semaphore(0), []
        self.c = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=mqtt.MQTTv5)
        self.c.on_message = self.on_message
        self.c.on_publish = lambda c, u, mid, reason, properties: self.note(reason)
        self.c.on_subscribe = lambda c, u, mid, reasons, properties: self.note(reasons[0])
        self.joined, self.connack = threading.Event(), None
        self.c.on_connect = self.on_connect
        properties = Properties(PacketTypes.CONNECT)
        for key, value in connect_properties.items():
            setattr(properties, key, value)
        self.c.connect(HOST, PORT, clean_start=clean, properties=properties)
        self.c.loop_start()
        assert self.joined.wait(20)

    def on_connect(self, c, userdata, flags, reason, properties):
        self.connack = (flags.session_present, reason, properties)
        self.joined.set()

    def on_message(self, c, userdata, message):
        self.messages.append(message)
        self.arrived.release()

    def note(self, reason):
        self.reasons.append(reason)
        self.acknowledged.release()

    def wait(self, semaphore):
        assert semaphore.acquire(timeout=20)

    def subscribe(self, topic, **options):
        self.c.subscribe(topic, options=SubscribeOptions(**options))
        self.wait(self.acknowledged)
        return self.reasons[-1]

    def publish(self, topic, payload, qos=1, **publish_properties):
        properties = Properties(PacketTypes.PUBLISH)
        for key, value in publish_properties.items():
            setattr(properties, key, value)
        self.c.publish(topic, payload, qos, properties=properties)
        self.wait(self.acknowledged)
        return self.reasons[-1]

    def message(self):
        self.wait(self.arrived)
        return self.messages.pop(0)

    def stop(self):
        self.c.disconnect()
        self.c.loop_stop()


nameless = Client("")
print("assigned", nameless.connack[2].AssignedClientIdentifier.startswith("auto-"))
nameless.stop()

service = Client("service", SessionExpiryInterval=60)
print("granted", service.subscribe("requests/+", qos=2, noLocal=True))
caller = Client("caller", RequestResponseInformation=1)
answers = caller.connack[2].ResponseInformation + "/1"
caller.subscribe(answers, qos=1)
print("reason", caller.publish("nobody/listens", "x"))
print("reason", caller.publish("requests/add", "1 2", qos=2, ResponseTopic=answers, CorrelationData=b"\x00\x07",
                               ContentType="text/plain", PayloadFormatIndicator=1,
                               UserProperty=[("b", "1"), ("a", "2")], MessageExpiryInterval=60))
request = service.message()
p = request.properties
print("request", request.topic, request.payload, request.qos, p.ContentType, p.UserProperty, p.MessageExpiryInterval <= 60)
service.publish(p.ResponseTopic, "3", CorrelationData=p.CorrelationData)
answer = caller.message()
print("answer", answer.payload, answer.properties.CorrelationData)

service.stop()
caller.publish("requests/later", "while you were away", MessageExpiryInterval=60)
service = Client("service", clean=False, SessionExpiryInterval=0)
print("resumed", service.connack[0], service.message().payload)
service.stop()
service = Client("service", clean=False)
print("gone", not service.connack[0])
service.stop()

workers = [Client("worker-1"), Client("worker-2")]
for worker in workers:
    worker.subscribe("$share/pool/jobs", qos=1)
for n in range(10):
    caller.publish("jobs", str(n))
done = []
for worker in workers:
    for _ in range(5):
        done.append(int(worker.message().payload))
print("shared", sorted(done) == list(range(10)))
for client in [caller, *workers]:
    client.stop()
