"""A Celery application for the test: GATEWAY_AMQP is host:port of the gateway, GATEWAY_RESULTS a folder.

Results come back over AMQP (rpc://); those of chords, which Celery does not do over rpc, are kept in the folder.
Run as a program it starts its worker and drives it."""

import os
import subprocess
import sys
import time

from celery import Celery, chain, chord, group

BROKER = f"amqp://guest:guest@{os.environ['GATEWAY_AMQP']}//"
RESULTS = f"file://{os.environ['GATEWAY_RESULTS']}"

app = Celery("celery_app", broker=BROKER, backend=os.environ.get("GATEWAY_BACKEND", "rpc://"))
app.conf.update(broker_connection_retry_on_startup=True, result_expires=600, worker_prefetch_multiplier=2)
app.conf.update(result_persistent=True, task_acks_late=True, broker_transport_options={"confirm_publish": True})


@app.task
def add(a, b):
    return a + b


@app.task
def total(values):
    return sum(values)


@app.task(bind=True, max_retries=3)
def third_time_lucky(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    return self.request.retries


@app.task
def when():
    return time.time()


def drive():
    assert add.delay(2, 3).get(60) == 5
    assert group(add.s(n, n) for n in range(10))().get(60) == [2 * n for n in range(10)]
    assert chain(add.s(1, 2), add.s(10), add.s(100))().get(60) == 113
    assert third_time_lucky.delay().get(60) == 2
    before = time.time()
    assert when.apply_async(countdown=1).get(60) - before >= 1
    assert list(app.control.inspect(timeout=5).ping().values()) == [{"ok": "pong"}]


def drive_chord():
    assert chord(group(add.s(n, 1) for n in range(5)))(total.s()).get(60) == 15


def main():
    for backend, drive_it in [("rpc://", drive), (RESULTS, drive_chord)]:
        environment = {**os.environ, "GATEWAY_BACKEND": backend}
        here = os.path.dirname(os.path.abspath(__file__))
        command = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "-P", "solo", "-c", "1", "-l", "warning"]
        worker = subprocess.Popen(command, cwd=here, env=environment)
        try:
            code = f"import celery_app; celery_app.{drive_it.__name__}()"
            subprocess.run([sys.executable, "-c", code], cwd=here, env=environment, check=True, timeout=100)
        finally:
            worker.terminate()
            worker.wait(60)
    print("ok")


if __name__ == "__main__":
    main()
