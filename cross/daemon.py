"""A gatewayd process, maybe under an emulator, with a state folder, configuration and free ports of its own."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

# Longest wait for a start, a stop or an answer: an emulator on a busy machine is slow.
PATIENCE_S = 120


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Daemon:
    def __init__(self, binary, emulator="", extra=""):
        self.emulated = bool(emulator)
        self.command = [*shlex.split(emulator), str(binary)]
        self.folder = Path(tempfile.mkdtemp(prefix="gatewayd-cross-"))
        self.mqtt, self.amqp, self.http, self.mqtts = (free_port() for _ in range(4))
        self.log = self.folder / "log"
        self.config = self.folder / "gateway.toml"
        self.config.write_text(
            f'[listener.mqtt]\nbind = "127.0.0.1:{self.mqtt}"\n'
            f'[listener.amqp]\nbind = "127.0.0.1:{self.amqp}"\n'
            f'[listener.http]\nbind = "127.0.0.1:{self.http}"\n'
            f'[storage]\npath = "{self.folder}/state"\n' + extra
        )
        self.process = None
        self.environment = dict(os.environ)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if kind and self.log.exists():
            print(f"the daemon's log:\n{self.log.read_text()}")
        shutil.rmtree(self.folder)

    def start(self):
        """Starts the daemon and waits until it listens. Seconds that took."""
        began = time.monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, "run", "--config", str(self.config)],
                stdin=subprocess.DEVNULL,
                stderr=log,
                stdout=log,
                env=self.environment,
            )
        for port in (self.mqtt, self.amqp, self.http):
            self.wait_listening(port)
        return time.monotonic() - began

    def wait_listening(self, port):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    raise AssertionError(f"gatewayd ended with status {self.process.returncode}") from None
                if time.monotonic() > deadline:
                    raise AssertionError(f"nobody listens on port {port}") from None
                time.sleep(0.02)

    def kill(self):
        """Pulls the plug of the process. Its emulator is the process, so no handler of either runs."""
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait(PATIENCE_S) == -signal.SIGKILL

    def stop(self):
        """SIGTERM: the daemon must end by itself with status 0."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE_S)
        assert status == 0, f"SIGTERM ended gatewayd with status {status}"

    def verb(self, *arguments, status=0, text=""):
        """Runs another verb with this configuration, under the same emulator; its standard output."""
        name, *rest = arguments
        done = subprocess.run(
            [*self.command, name, "--config", str(self.config), *rest],
            input=text,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == status, f"gatewayd {' '.join(arguments)}: {done}"
        return done.stdout

    def status(self):
        return json.loads(self.verb("status", "--json"))

    def memory(self):
        """Resident KiB: of the whole process, and of what the emulated program mapped."""
        whole = guest = 0
        below = None
        for line in Path(f"/proc/{self.process.pid}/smaps").read_text().splitlines():
            mapping = re.match(r"([0-9a-f]+)-[0-9a-f]+ \S+ \S+ \S+ \S+\s*(.*)", line)
            if mapping:
                start, path = int(mapping[1], 16), mapping[2]
                below = start < GUEST_END and "qemu-" not in path and path != "[heap]"
            elif line.startswith("Rss:"):
                kib = int(line.split()[1])
                whole += kib
                guest += kib if below else 0
        return whole, guest


# User-mode qemu puts the program's pages below this address, and its own above.
GUEST_END = 0x6000_0000_0000
