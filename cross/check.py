"""Runs a gatewayd binary, maybe under an emulator, through what a board asks of it in a day. Prints a line for each
step, ends with `N passed, 0 failed` or with the first failure. Needs the environment that scripts/setup makes.

usage: check.py BINARY [EMULATOR]
"""

import json
import pathlib
import re
import shutil
import ssl
import subprocess
import sys
import threading
import urllib.request

import paho.mqtt.client as mqtt
import pika
from paho.mqtt.enums import CallbackAPIVersion

from daemon import PATIENCE_S, Daemon

STEPS = []


def step(function):
    STEPS.append(function)
    return function


class Client:
    """An MQTT client that counts what came."""

    def __init__(self, daemon, name, clean=True, version=mqtt.MQTTv311, tls=None):
        self.messages, self.changed, self.granted = [], threading.Condition(), 0
        options = {} if version == mqtt.MQTTv5 else {"clean_session": clean}
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=version, **options)
        self.client.on_message = self.on_message
        self.client.on_subscribe = self.on_subscribe
        self.client.max_inflight_messages_set(100)
        self.session_present = None
        self.client.on_connect = self.on_connect
        if tls:
            self.client.tls_set_context(tls)
        self.client.connect("127.0.0.1", daemon.mqtts if tls else daemon.mqtt, 600)
        self.client.loop_start()
        self.wait(lambda: self.session_present is not None, "no CONNACK")

    def on_connect(self, client, userdata, flags, reason, properties):
        assert not reason.is_failure, reason
        with self.changed:
            self.session_present = flags.session_present
            self.changed.notify_all()

    def on_subscribe(self, client, userdata, mid, reasons, properties):
        with self.changed:
            self.granted += len(reasons)
            self.changed.notify_all()

    def on_message(self, client, userdata, message):
        with self.changed:
            self.messages.append(message)
            self.changed.notify_all()

    def wait(self, true, otherwise):
        with self.changed:
            assert self.changed.wait_for(true, PATIENCE_S), f"{otherwise}: {self.__dict__}"

    def subscribe(self, filter, qos):
        before = self.granted
        self.client.subscribe(filter, qos)
        self.wait(lambda: self.granted > before, "no SUBACK")

    def publish(self, topic, payload, qos, retain=False):
        info = self.client.publish(topic, payload, qos, retain)
        if qos:
            info.wait_for_publish(PATIENCE_S)
            assert info.is_published(), f"no acknowledgement for {topic}"

    def expect(self, payloads):
        self.wait(lambda: len(self.messages) >= len(payloads), f"expected {payloads}")
        assert [m.payload for m in self.messages] == payloads, [m.payload for m in self.messages]
        self.messages = []

    def close(self):
        self.client.disconnect()
        self.client.loop_stop()


def channel_of(daemon):
    connection = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", daemon.amqp, blocked_connection_timeout=PATIENCE_S)
    )
    channel = connection.channel()
    channel.confirm_delivery()
    return connection, channel


@step
def it_says_what_is_wrong_with_a_configuration(daemon):
    daemon.verb("check-config")
    bad = daemon.folder / "bad.toml"
    bad.write_text('[limits]\nmemory_max = "12 bananas"\n')
    done = subprocess.run([*daemon.command, "check-config", "--config", str(bad)], capture_output=True, text=True)
    assert done.returncode == 78 and "bad.toml:2:" in done.stdout + done.stderr, done


@step
def it_starts(daemon):
    print(f"   listening after {daemon.start():.2f} s")


@step
def mqtt_goes_round_at_each_quality_of_service(daemon):
    reader, writer = Client(daemon, "reader"), Client(daemon, "writer")
    reader.subscribe("plant/+/temp", 2)
    for qos in (0, 1, 2):
        for size in (1, 100, 70_000):
            writer.publish(f"plant/{qos}/temp", b"%d" % qos * size, qos)
            reader.expect([b"%d" % qos * size])
    reader.close()
    writer.close()


@step
def amqp_goes_round_and_meets_mqtt(daemon):
    connection, channel = channel_of(daemon)
    channel.queue_declare("work", durable=True)
    channel.queue_bind("work", "amq.topic", "plant.#")
    persistent = pika.BasicProperties(delivery_mode=2)
    channel.basic_publish("", "work", b"direct", persistent, mandatory=True)
    writer = Client(daemon, "writer")
    writer.publish("plant/1/alarm", b"from mqtt", 1)
    for wanted in (b"direct", b"from mqtt"):
        method, _, body = channel.basic_get("work")
        assert body == wanted, body
        channel.basic_ack(method.delivery_tag)
    reader = Client(daemon, "reader")
    reader.subscribe("hall/#", 1)
    channel.basic_publish("amq.topic", "hall.door", b"from amqp", persistent)
    reader.expect([b"from amqp"])
    connection.close()
    writer.close()
    reader.close()


@step
def tls_shakes_hands(daemon):
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = ssl.create_default_context(cafile=daemon.folder / "cert.pem")
        context.minimum_version = context.maximum_version = version
        client = Client(daemon, "secret", tls=context)
        client.subscribe("vault", 1)
        client.publish("vault", b"whisper", 1)
        client.expect([b"whisper"])
        print(f"   {client.client.socket().version()} {client.client.socket().cipher()[0]}")
        client.close()


@step
def what_was_acknowledged_survives_kill_minus_nine(daemon):
    worker = Client(daemon, "worker", clean=False)
    worker.subscribe("job/#", 1)
    worker.close()
    writer = Client(daemon, "writer")
    payloads = [b"job %d" % n for n in range(200)]
    for payload in payloads:
        writer.publish("job/x", payload, 1)
    writer.publish("last/value", b"kept", 1, retain=True)
    connection, channel = channel_of(daemon)
    for n in range(20):
        channel.basic_publish("", "work", b"task %d" % n, pika.BasicProperties(delivery_mode=2), mandatory=True)
    # Paho would come back by itself and take the next writer's place.
    writer.close()
    daemon.kill()
    print(f"   listening again after {daemon.start():.2f} s")
    worker = Client(daemon, "worker", clean=False)
    assert worker.session_present
    worker.expect(payloads)
    worker.subscribe("last/#", 1)
    worker.expect([b"kept"])
    worker.close()
    connection, channel = channel_of(daemon)
    for n in range(20):
        method, _, body = channel.basic_get("work")
        assert body == b"task %d" % n and method.redelivered, (body, method)
        channel.basic_ack(method.delivery_tag)
    connection.close()


@step
def readings_are_queried(daemon):
    writer = Client(daemon, "writer")
    values = [20 + n / 8 for n in range(50)]
    for value in values:
        writer.publish("sensors/hall/temp", json.dumps({"value": value, "unit": "C"}), 1)
    writer.close()
    rows = [json.loads(line) for line in daemon.verb("query", "readings", "--format", "jsonl").splitlines()]
    assert [row["value"] for row in rows] == values, rows
    daemon.kill()
    daemon.start()
    again = daemon.verb("query", "readings", "--format", "jsonl")
    assert [json.loads(line) for line in again.splitlines()] == rows


@step
def http_and_the_control_socket_answer(daemon):
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.http}/healthz", timeout=PATIENCE_S) as answer:
        assert answer.status == 200
    daemon.verb("status", "--check")
    assert daemon.status()


@step
def a_password_is_hashed_and_checked(daemon):
    passwords = daemon.folder / "passwd"
    daemon.verb("user", "add", "probe", "--password-file", str(passwords), "--password-stdin", text="secret\n")
    assert passwords.read_text().startswith("probe:$"), passwords.read_text()


@step
def it_stops_and_says_so_at_the_next_start(daemon):
    daemon.stop()
    before = len(daemon.log.read_text())
    daemon.start()
    assert "last stop: clean" in daemon.log.read_text()[before:]
    daemon.stop()


@step
def it_runs_with_a_clock_after_2038_and_back_again(daemon):
    if not daemon.emulated:
        print("   not tried: the clock of a static program can be set through an emulator only")
        return
    library, source = daemon.folder / "later.so", pathlib.Path(__file__).parent / "later.c"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    daemon.environment["LD_PRELOAD"] = str(library)
    before = len(daemon.log.read_text())
    daemon.start()
    shown = re.findall(r"^20\d\d", daemon.log.read_text()[before:], re.MULTILINE)
    assert shown, "no line of the log says when"
    if not all(int(year) > 2038 for year in shown):
        print("   not tried: this emulator is static and keeps its clock")
    writer = Client(daemon, "writer")
    writer.publish("sensors/hall/temp", json.dumps({"value": 1, "unit": "C"}), 1)
    writer.close()
    daemon.stop()
    del daemon.environment["LD_PRELOAD"]
    daemon.start()
    daemon.stop()


def certificate(folder):
    """A self-signed certificate for localhost."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        + ["-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-subj", "/CN=localhost"]
        + ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        + ["-addext", "basicConstraints=critical,CA:FALSE"],
        check=True,
        capture_output=True,
    )


def main(binary, emulator=""):
    assert shutil.which("openssl"), "openssl is missing: scripts/setup installs it"
    with Daemon(binary, emulator) as daemon:
        certificate(daemon.folder)
        with daemon.config.open("a") as config:
            config.write(
                f'[listener.mqtts]\nkind = "mqtt"\nbind = "127.0.0.1:{daemon.mqtts}"\ntls = "server"\n'
                f'[tls.server]\ncert = "{daemon.folder}/cert.pem"\nkey = "{daemon.folder}/key.pem"\n'
            )
        for function in STEPS:
            print(function.__name__.replace("_", " "), flush=True)
            function(daemon)
    print(f"{len(STEPS)} passed, 0 failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
