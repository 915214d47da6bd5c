"""Plays short AMQP conversations to a server and compares or records the frames that come back.

    converse.py HOST PORT check    FILE...     what comes must be what the file says for gatewayd
    converse.py HOST PORT rabbitmq FILE...     what comes must be what the file says for RabbitMQ
    converse.py HOST PORT record   FILE...     writes what RabbitMQ sends into the files
    converse.py HOST PORT differ   FILE...     writes what gatewayd sends where it differs from RabbitMQ

A file holds what the client does and what the server answered, one thing a line:

    # The first lines tell what it is about.
    differs: why gatewayd answers something else, if it does
    open b frame_max=4096            a connection beside `a`, which is always open; `hello` leaves out the login
    1> queue.declare queue='q'       a method on channel 1 of connection a; `b:1>` on connection b
    1> publish routing_key='q' body='x' properties={'delivery_mode': 2}     method and content; `fill=9000`: a body of that size
    1> header size=3                 a content header alone; `1> body 'xyz'` a body frame alone
    raw 0100                         these bytes as they are
    sleep 0.3
    drop b                           the client closes its socket
    1< queue.declare-ok ...          what the server sent until then; `closed` when it closed the socket
    ~1< ...                          what gatewayd sent in place of these answers; `~` alone: nothing

Frames are encoded and decoded by pika, content frames are shown with their method, in order on each channel.
What a server chooses itself (names, times) is shown in pointed brackets.
"""

import ast
import re
import select
import socket
import struct
import sys
import time

import pika
from pika import frame, spec

# How long a silent server is taken to have said all, while answers are recorded; and how long an expected one is waited for.
QUIET_S, PATIENCE_S = 0.25, 10
METHODS = {m.NAME: m for m in spec.methods.values()}
CAPABILITIES = {
    name: True
    for name in ["authentication_failure_close", "basic.nack", "connection.blocked", "consumer_cancel_notify"]
}


def wire_name(cls):
    """Basic.GetOk is basic.get-ok."""
    major, minor = cls.split(".")
    return major.lower() + "." + re.sub(r"(?<!^)(?=[A-Z])", "-", minor).lower()


BY_WIRE_NAME = {wire_name(name): cls for name, cls in METHODS.items()}


def arguments(text):
    """`a=1 b='x'` as a dictionary of Python literals."""
    call = ast.parse(f"f({re.sub(chr(10), ' ', commas(text))})", mode="eval").body
    return [ast.literal_eval(a) for a in call.args], {k.arg: ast.literal_eval(k.value) for k in call.keywords}


def commas(text):
    """Puts commas between the arguments, where no bracket or quote is open."""
    out, depth, quote = [], 0, None
    for c in text.strip():
        if quote:
            quote = None if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == " " and depth == 0:
            c = ","
        out.append(c)
    return "".join(out)


class Peer:
    """One connection."""

    def __init__(self, host, port, name):
        self.name, self.buffer, self.frames, self.pending, self.ended = name, b"", [], {}, False
        self.frame_max = 131072
        self.socket = socket.create_connection((host, port), 5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            pass  # What the server sent before it closed is still to be read.

    def open(self, frame_max=131072, channel_max=2047, heartbeat=0, user="guest", password="guest", vhost="/", capabilities=None, mechanism="PLAIN"):
        self.send(b"AMQP\0\0\x09\x01")
        self.take(1)
        properties = {"product": "converse", "capabilities": CAPABILITIES if capabilities is None else capabilities}
        response = f"\0{user}\0{password}"
        self.method(0, "connection.start-ok", client_properties=properties, mechanism=mechanism, response=response)
        if not self.take(1)[0].startswith("0< connection.tune "):
            return
        self.frame_max = frame_max or 131072
        self.method(0, "connection.tune-ok", channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat)
        self.method(0, "connection.open", virtual_host=vhost)
        self.take(1)

    def method(self, channel, name, **named):
        self.send(frame.Method(channel, BY_WIRE_NAME[name](**named)).marshal())

    def publish(self, channel, body="", properties=None, **named):
        body = body if isinstance(body, bytes) else body.encode()
        data = frame.Method(channel, spec.Basic.Publish(**named)).marshal()
        data += frame.Header(channel, len(body), pika.BasicProperties(**(properties or {}))).marshal()
        step = self.frame_max - 8
        for at in range(0, len(body), step):
            data += frame.Body(channel, body[at : at + step]).marshal()
        self.send(data)

    def read(self, timeout):
        """Reads once; True if something came."""
        if self.ended or not select.select([self.socket], [], [], timeout)[0]:
            return False
        try:
            data = self.socket.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self.ended = True
            self.frames.append(("", "closed"))
            return True
        self.buffer += data
        if self.buffer[:4] == b"AMQP" and len(self.buffer) >= 8:
            self.frames.append(("", f"header {self.buffer[4:8].hex()}"))
            self.buffer = self.buffer[8:]
        while True:
            used, decoded = frame.decode_frame(self.buffer)
            if not decoded:
                return True
            self.buffer = self.buffer[used:]
            self.decoded(decoded)

    def decoded(self, got):
        number = got.channel_number
        if isinstance(got, frame.Heartbeat):
            return
        if isinstance(got, frame.Method):
            text = shown(got.method)
            if got.method.NAME in ("Basic.Deliver", "Basic.GetOk", "Basic.Return"):
                self.pending[number] = [text, None, b"", 0]
                return
            self.frames.append((number, text))
            return
        pending = self.pending[number]
        if isinstance(got, frame.Header):
            properties = {k: v for k, v in vars(got.properties).items() if v is not None}
            pending[1], pending[3] = (properties, got.body_size), 0
        else:
            pending[2] += got.fragment
            pending[3] += 1
        properties, size = pending[1]
        if len(pending[2]) == size:
            text, _, body, count = self.pending.pop(number)
            body = body.decode("latin-1") if len(body) <= 100 else f"<{len(body)} bytes in {count} frames>"
            self.frames.append((number, f"{text} properties={literal(properties)} body={body!r}"))

    def take(self, count):
        """The next frames, at least `count` unless the server is silent for long."""
        end = time.monotonic() + PATIENCE_S
        while len(self.frames) < count and not self.ended and time.monotonic() < end:
            self.read(end - time.monotonic())
        found, self.frames = self.frames[:count], self.frames[count:]
        return [line(n, t) for n, t in found]

    def take_all(self):
        """Everything until the server is silent."""
        while self.read(QUIET_S):
            pass
        found, self.frames = self.frames, []
        return [line(n, t) for n, t in found]


def line(number, text):
    return text if number == "" else f"{number}< {text}"


GENERATED = re.compile(r"amq\.(gen|ctag|rabbitmq\.reply-to\.)[-\w.+/=]*")
HIDDEN = {"server_properties", "locales"}


def shown(method):
    values = []
    for key, value in vars(method).items():
        if key in HIDDEN or key == "ticket" or key.startswith("_"):
            continue
        if key == "mechanisms":
            value = sorted(value.decode().split() if isinstance(value, bytes) else value.split())
        values.append(f" {key}={literal(value)}")
    return wire_name(method.NAME) + "".join(values)


def literal(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {literal(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if type(value).__name__ == "datetime":
        return "<time>"
    text = repr(value)
    return GENERATED.sub(lambda m: f"<{m[1].strip('.')}>", text)


class Conversation:
    """A file: its text, its steps, and for each step the answers of RabbitMQ and of gatewayd."""

    def __init__(self, path, anew=False):
        """With `anew` what was recorded is forgotten, and answers are waited for after each act."""
        self.path, self.head, self.steps = path, [], []
        for text in open(path).read().splitlines():
            if not self.steps and (text.startswith(("#", "differs:")) or not text):
                self.head.append(text)
            elif re.match(r"(~?(\w+:)?(\d+< |closed|header )|~$)", text) and not text.startswith("header size"):
                answers = self.steps[-1][2 if text.startswith("~") else 1]
                if anew:
                    continue
                if answers is None:
                    answers = self.steps[-1][2] = []
                if text != "~":
                    answers.append(text.removeprefix("~"))
            elif text:
                if anew or not self.steps or self.steps[-1][1] or self.steps[-1][2] is not None:
                    self.steps.append([[], [], None])
                self.steps[-1][0].append(text)

    def write(self):
        lines = list(self.head)
        for acts, answers, own in self.steps:
            lines += acts + answers
            if own is not None:
                lines += ["~" + text for text in own] or ["~"]
        open(self.path, "w").write("\n".join(lines) + "\n")


def place(text):
    """Connection and channel of an answer, so that those of one channel stay in order and others do not matter."""
    peer, number, what = re.match(r"(?:(\w+):)?(?:(\d+)< |(closed|header))", text).groups()
    return peer or "", {None: int(number or 0), "header": -1, "closed": 1 << 16}[what]


class Player:
    def __init__(self, host, port):
        self.host, self.port, self.peers, self.names = host, port, {}, {}

    def act(self, text):
        word, _, rest = text.partition(" ")
        if word == "open":
            name, _, named = rest.partition(" ")
            self.peers[name] = peer = Peer(self.host, self.port, name)
            peer.open(**arguments(named)[1])
        elif word == "hello":
            self.peers[rest or "a"] = Peer(self.host, self.port, rest or "a")
        elif word == "raw":
            where, _, octets = rest.rpartition(":")
            self.peers[where or "a"].send(self.octets(octets))
        elif word == "sleep":
            time.sleep(float(rest))
        elif word == "drop":
            self.peers.pop(rest).socket.close()
        else:
            where, _, number = word.removesuffix(">").rpartition(":")
            peer, number = self.peers[where or "a"], int(number)
            name, _, rest = rest.partition(" ")
            plain, named = arguments(rest)
            if name == "publish":
                if "fill" in named:
                    named["body"] = named.pop("fill") * "x"
                peer.publish(number, **named)
            elif name == "header":
                peer.send(frame.Header(number, named["size"], pika.BasicProperties(**named.get("properties", {}))).marshal())
            elif name == "body":
                peer.send(frame.Body(number, plain[0].encode()).marshal())
            else:
                peer.method(number, name, **named)

    @staticmethod
    def octets(text):
        """Hexadecimal; 'text' and N*XX within it."""
        out = b""
        for part in re.findall(r"'[^']*'|[^ ]+", text):
            if part.startswith("'"):
                out += part.strip("'").encode()
            elif "*" in part:
                count, octets = part.split("*")
                out += int(count) * bytes.fromhex(octets)
            else:
                out += bytes.fromhex(part)
        return out

    def answers(self, expected=None):
        """What came, connection by connection and channel by channel."""
        found = []
        for name, peer in self.peers.items():
            prefix = "" if name == "a" else f"{name}:"
            if expected is None:
                lines = peer.take_all()
            else:
                own = [e for e in expected if (e.split(":")[0] if re.match(r"\w+:(\d+<|closed|header)", e) else "a") == name]
                lines = peer.take(len(own))
            found += [prefix + text for text in lines]
        return sorted(found, key=place)

    def finish(self):
        """Closes each connection; what comes before the answer was not expected."""
        extra = []
        for name, peer in self.peers.items():
            if not peer.ended:
                peer.method(0, "connection.close", reply_code=200, reply_text="bye", class_id=0, method_id=0)
                while True:
                    got = peer.take(1)
                    if got in ([], ["0< connection.close-ok"], ["closed"]):
                        break
                    extra += [f"{name}: {text}" for text in got]
            peer.socket.close()
        return extra


def play(host, port, conversation, mode):
    """Answers whether all was as it should be."""
    player, good = Player(host, port), True
    if not any(a.split(" ")[0] == "hello" and a in ("hello", "hello a") for a in conversation.steps[0][0]):
        if not any(a.startswith("open a") for a in conversation.steps[0][0]):
            player.act("open a")
    for step in conversation.steps:
        acts, theirs, own = step
        for text in acts:
            player.act(text)
        if mode in ("record", "differ"):
            found = player.answers()
            if mode == "record":
                step[1] = found
            else:
                step[2] = found if found != theirs else None
            continue
        expected = theirs if mode == "rabbitmq" or own is None else own
        found = player.answers(expected)
        if found != expected:
            good = False
            print(f"{conversation.path}\n  after    {acts[-1]}\n  expected {expected}\n  came     {found}")
            break
    extra = player.finish()
    if extra and good and mode in ("check", "rabbitmq"):
        good = False
        print(f"{conversation.path}: nobody expected {extra}")
    if mode in ("record", "differ"):
        conversation.write()
    return good


def main():
    host, port, mode, *paths = sys.argv[1:]
    results = []
    for path in paths:
        try:
            results.append(play(host, int(port), Conversation(path, mode == "record"), mode))
        except Exception as error:
            print(f"{path}: {type(error).__name__}: {error}")
            raise
    print(f"{sum(results)} of {len(results)} conversations as expected")
    if all(results):
        print("ok")
    sys.exit(0 if all(results) else 1)


main()
