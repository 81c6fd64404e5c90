"""quixstreams, in a process and an environment of its own (requirements-bench-quix.txt): it wants an older
confluent-kafka than we do.

From joining the group, as for the others, to the last message; its last commit is left out, to its advantage.
"""

from __future__ import annotations

import subprocess

from benchmarks.peers import own_python

_PROGRAM = """
import sys, time
from quixstreams import Application

servers, name, group, total = sys.argv[1:4] + [int(sys.argv[4])]
app = Application(servers, consumer_group=group, auto_offset_reset="earliest", loglevel="CRITICAL")
seen = 0

def handle(value):
    global seen
    seen += 1
    if seen == total:
        print(total / (time.perf_counter() - began))
        app.stop()

app.dataframe(app.topic(name, value_deserializer="bytes", key_deserializer="bytes")).apply(handle)
began = time.perf_counter()
app.run()
"""


def rate(servers: str, topic: str, group: str, total: int) -> float:
    """Messages a second."""
    command = [own_python("quix"), "-c", _PROGRAM, servers, topic, group, str(total)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return float(done.stdout.split()[-1])
