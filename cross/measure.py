"""Measures a gatewayd binary, maybe under an emulator: resident memory, and instructions executed for each message.
Prints one line of a markdown table for each. Needs the environment that scripts/setup makes; cross/measure calls it.

usage: measure.py BINARY EMULATOR BENCH PLUGIN
EMULATOR is a dynamically linked qemu, which can load PLUGIN (count_instructions.c), and may be empty for "memory only".
BENCH is gateway-bench.
"""

import re
import subprocess
import sys

from check import Client
from daemon import PATIENCE_S, Daemon

MESSAGES = 10_000
# What is counted between two runs of different length is the messages alone: neither start nor stop.
FEW, MANY = 20_000, 60_000

UNBOUNDED = '[queue.session]\nmessages_max = 100000\n[storage]\nbytes_per_day_budget = ""\n'


def memory(binary, emulator):
    """KiB resident, (whole process, program's own): idle, after 10 000 delivered, with 10 000 more queued on flash."""
    with Daemon(binary, emulator) as daemon:
        daemon.config.write_text(daemon.config.read_text().replace("[storage]\n", UNBOUNDED))
        daemon.start()
        figures = [daemon.memory()]
        reader = Client(daemon, "reader", clean=False)
        reader.subscribe("plant/#", 1)
        writer = Client(daemon, "writer")
        publish(writer)
        reader.wait(lambda: len(reader.messages) == MESSAGES, "not all came")
        figures.append(daemon.memory())
        reader.close()
        publish(writer)
        figures.append(daemon.memory())
        writer.close()
        daemon.stop()
    return figures


def publish(writer):
    infos = [writer.client.publish("plant/1", b"x" * 100, 1) for _ in range(MESSAGES)]
    for info in infos:
        info.wait_for_publish(PATIENCE_S)
        assert info.is_published()


def instructions(binary, emulator, bench, plugin, verb):
    """Instructions of the daemon for each message of this load."""

    def run(count):
        with Daemon(binary, f"{emulator} -plugin {plugin}") as daemon:
            daemon.config.write_text(daemon.config.read_text().replace("[storage]\n", UNBOUNDED))
            daemon.start()
            command = [bench, *verb, "--port", str(daemon.mqtt), "--count", str(count), "--size", "100", "--topic", "plant"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S * 5)
            daemon.stop()
            return int(re.search(r"instructions executed: (\d+)", daemon.log.read_text())[1])

    return (run(MANY) - run(FEW)) / (MANY - FEW)


LOADS = {
    "QoS 0, one to one": ["throughput", "--qos", "0", "--window", "100"],
    "QoS 1, one to one": ["throughput", "--qos", "1", "--window", "100"],
    "QoS 1 to an offline session": ["durable", "--window", "100", "--no-verify"],
}


def main(binary, emulator, bench="", plugin=""):
    idle, delivered, queued = memory(binary, emulator)
    print("| resident KiB, whole process (program's own pages) | idle | 10 000 delivered | 10 000 more queued |")
    print("| |" + "".join(f" {whole} ({own}) |" for whole, own in (idle, delivered, queued)))
    for name, verb in LOADS.items() if plugin else ():
        print(f"| instructions a message, {name} | {instructions(binary, emulator, bench, plugin, verb):.0f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
