"""Runs the tests of eclipse/paho.mqtt.testing as a unittest suite. Arguments: its interoperability folder, broker as
host:port, and the protocol version, 3.1.1 (the default) or 5. Ends with a line `CASE name<TAB>ok|failed` for each test.

The suite's own main sets module globals that its tests read; this does the same and leaves its files alone.
"""

import logging
import os
import signal
import socket
import sys
import time
import unittest

sys.dont_write_bytecode = True
FOLDER, BROKER, *VERSION = sys.argv[1:]
HOST, PORT = BROKER.rsplit(":", 1)
sys.path.insert(0, FOLDER)
TOPICS = ("TopicA", "TopicA/B", "Topic/C", "TopicA/C", "/TopicA")
WILDTOPICS = ("TopicA/+", "+/C", "#", "/#", "/+", "+/+", "TopicA/#")

if VERSION == ["5"]:
    import client_test5 as client_test

    client_test.topic_prefix = "client_test5/"
    TOPICS = [client_test.topic_prefix + topic for topic in TOPICS]
    WILDTOPICS = [client_test.topic_prefix + topic for topic in WILDTOPICS]
    # It is called before the tests and sets what the suite's main has set already.
    client_test.setData = lambda: None
else:
    import client_test

client_test.host, client_test.port = HOST, int(PORT)
client_test.topics, client_test.wildtopics = TOPICS, WILDTOPICS
client_test.nosubscribe_topics = ("test/nosubscribe",)
logging.getLogger().setLevel(logging.ERROR)

for _ in range(500):
    try:
        socket.create_connection((HOST, int(PORT)), 1).close()
        break
    except OSError:
        time.sleep(0.02)

suite = unittest.defaultTestLoader.loadTestsFromTestCase(client_test.Test)
if VERSION != ["5"]:
    # The ten that the suite's main runs, and the will test, whose name it does not pick up.
    suite.addTest(client_test.Test("will_message_test"))


class Result(unittest.TextTestResult):
    """Ends a test that waits for ever, and keeps the outcome of each."""

    cases = {}

    def startTest(self, test):
        super().startTest(test)
        self.cases[test.id().rsplit(".", 1)[1]] = "ok"
        # Again and again: the suite catches what it does not know here and there, and goes on.
        signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX, 5)

    def stopTest(self, test):
        signal.setitimer(signal.ITIMER_REAL, 0)
        super().stopTest(test)

    def addError(self, test, err):
        signal.setitimer(signal.ITIMER_REAL, 0)
        super().addError(test, err)
        self.cases[test.id().rsplit(".", 1)[1]] = "failed"

    def addFailure(self, test, err):
        signal.setitimer(signal.ITIMER_REAL, 0)
        super().addFailure(test, err)
        self.cases[test.id().rsplit(".", 1)[1]] = "failed"


# The longest test that passes takes 35 seconds.
SECONDS_MAX = 90


def give_up(_signal, _frame):
    raise TimeoutError(f"no end after {SECONDS_MAX} seconds")


signal.signal(signal.SIGALRM, give_up)
result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=Result).run(suite)
bad = len(result.failures) + len(result.errors)
print(f"{result.testsRun - bad} passed, {bad} failed")
for name, outcome in Result.cases.items():
    print(f"CASE {name}\t{outcome}")
sys.stdout.flush()
# A test that was ended may have left threads behind.
os._exit(bool(bad))
