"""AMQP over TLS: SASL EXTERNAL with a certificate, PLAIN without one. Arguments: MQTT host and port (unused), AMQP host
and port, CA, certificate, key."""

import ssl
import sys

import pika

host, port, ca, cert, key = sys.argv[3], int(sys.argv[4]), *sys.argv[5:8]


def round_trip(context, credentials, name):
    parameters = pika.ConnectionParameters(
        host=host,
        port=port,
        ssl_options=pika.SSLOptions(context, host),
        credentials=credentials,
        blocked_connection_timeout=20,
        socket_timeout=20,
        client_properties={"connection_name": name},
    )
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.confirm_delivery()
    queue = channel.queue_declare("", exclusive=True).method.queue
    body = b"x" * 200_000
    channel.basic_publish("", queue, body, mandatory=True)
    channel.basic_publish("", queue, b"small", mandatory=True)
    for expected in (body, b"small"):
        method, _, got = channel.basic_get(queue, auto_ack=True)
        assert got == expected, (len(got or b""), method)
    return connection


with_certificate = ssl.create_default_context(cafile=ca)
with_certificate.load_cert_chain(cert, key)
external = round_trip(with_certificate, pika.credentials.ExternalCredentials(), "external")
print("ok external")

without = ssl.create_default_context(cafile=ca)
plain = round_trip(without, pika.PlainCredentials("guest", "guest"), "plain")
print("ok plain")
plain.close()

try:
    round_trip(without, pika.credentials.ExternalCredentials(), "nobody")
except (pika.exceptions.AMQPError, RuntimeError, OSError) as error:
    print("refused", type(error).__name__)
else:
    sys.exit("EXTERNAL without a certificate was let in")

# Who the gateway takes the first for.
channel = external.channel()
queue = channel.queue_declare("", exclusive=True).method.queue
channel.basic_publish("", queue, b"", pika.BasicProperties(user_id="worker-7"), mandatory=True)
_, properties, _ = channel.basic_get(queue, auto_ack=True)
print("user", properties.user_id)
external.close()
