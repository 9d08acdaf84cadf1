"""One of some processes of a job, in Python: see the example neighbours of crates/gambeson-link.

neighbour.py FILE COUNT NUMBER
"""

import sys
import threading
import time
from pathlib import Path

from gambeson import link

WHO, DONE = range(2)
file, count, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
done = threading.Event()


def who(request: link.Request) -> bytes:
    """Who asks."""
    return f"{number}, asked by {request.peer.name} with the role {', '.join(request.peer.roles)}".encode()


def finish(request: link.Request) -> bytes:
    """The last question."""
    done.set()
    return b""


with link.Domain.from_job(listen=["127.0.0.1:0"]) as domain:
    endpoint = domain.endpoint({WHO: who, DONE: finish}, class_name="neighbours")
    part = Path(f"{file}.part{number}")
    part.touch(0o600, exist_ok=False)
    part.write_bytes(bytes(endpoint.startpoint()))
    part.rename(f"{file}.{number}")
    following = Path(f"{file}.{(number + 1) % count}")
    while not following.exists():
        time.sleep(0.005)
    startpoint = domain.startpoint(following.read_bytes(), timeout=30)
    answer = startpoint.call(WHO, timeout=30)
    print(f"{number}: {answer.decode()} ({startpoint.protection.value})", flush=True)
    startpoint.call(DONE, timeout=30)
    assert done.wait(30)
    time.sleep(0.05)
