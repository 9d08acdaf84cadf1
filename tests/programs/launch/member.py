"""A process that was made by start_process: says who it is, and asks others who they are."""

import json
import os
import subprocess
import sys
import threading

from gambeson import launch, link

leave: list[int] = []
left = threading.Event()
child = launch.init_process()


def who(_: link.Request) -> bytes:
    return f"{child.number} {child.context.decode()}".encode()


def ask(request: link.Request) -> bytes:
    """Asks another member, whose startpoint came."""
    return child.domain.startpoint(request.payload, transport=link.Transport.TCP).call(0, b"", timeout=20)


def end(request: link.Request) -> None:
    leave.append(request.payload[0])
    left.set()


def again(_: link.Request) -> bytes:
    """What comes of taking the context twice, here and in a process that has inherited it, and of being ready twice."""
    said = []
    for attempt in (launch.init_process, lambda: child.ready(endpoint)):
        try:
            attempt()
        except link.Error as error:
            said.append(f"{type(error).__name__}: {error}")
    program = "from gambeson import launch; launch.init_process()"
    descriptor = int(os.environ["GAMBESON_CONTEXT_FD"])
    inherited = subprocess.run(
        [sys.executable, "-c", program], pass_fds=[descriptor], capture_output=True, text=True, check=False
    )
    said.append(inherited.stderr.splitlines()[-1])
    return json.dumps(said).encode()


def start(request: link.Request) -> bytes:
    """Starts a process of its own, which asks the member whose startpoint came."""
    with launch.Creator(child=child) as creator:
        processes = creator.start_process(
            "h1",
            [sys.executable, __file__],
            environment={"PYTHONPATH": os.environ["PYTHONPATH"]},
            context=b"grandchild",
        )
        with processes:
            grandchild = child.domain.startpoint(processes[0].startpoint.result(60))
            answers = [grandchild.call(0, b"", timeout=20), grandchild.call(1, request.payload, timeout=20)]
            grandchild.post(2, bytes([0]))
            processes[0].status.result(20)
    return b", ".join(answers)


endpoint = child.domain.endpoint({0: who, 1: ask, 2: end, 3: again, 4: start})
creator = child.ready(endpoint)
if creator is not None:
    creator.call(0, str(child.number).encode(), timeout=20)
left.wait(120)
child.close()
sys.exit(leave[0])
