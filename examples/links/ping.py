"""Two processes and a sealed link between them.

    pip install gambeson          # or, from a clone: make install-python
    python ping.py

One process has an endpoint that answers; the other asks it and takes the time. Everything between them is sealed
(AES-256-GCM under keys of this link alone): that is how links are unless one says otherwise.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

from gambeson import link

ECHO, COUNT_DOWN = 0, 1
PINGS = 2000


def open_domain(pipe: Connection, name: str, listen: list[str]) -> link.Domain:
    """A domain with a fresh key, which talks to the owner of one other key and to nobody else. The two learn each
    other's keys over `pipe`; in a real program a file, a launcher or a person carries them."""
    identity = link.Identity.generate()
    pipe.send_bytes(identity.key_hash)
    return link.Domain(identity, link.Trust().pinned(pipe.recv_bytes(), name), listen=listen)


def count_down(request: link.Request) -> Iterator[bytes]:
    for number in range(request.payload[0], 0, -1):
        yield b"%d" % number


def serve(pipe: Connection) -> None:
    with open_domain(pipe, "asker", ["127.0.0.1:0"]) as domain:
        endpoint = domain.endpoint({ECHO: lambda request: request.payload, COUNT_DOWN: count_down})
        # A startpoint is what lets others ask this endpoint: here, so many times and no more. It is a secret.
        pipe.send_bytes(bytes(endpoint.startpoint(link.Caveat.uses(PINGS + 4))))
        pipe.recv_bytes()  # threads of the domain answer meanwhile


async def ask_all(startpoint: link.Startpoint) -> None:
    both = await asyncio.gather(startpoint.request(ECHO, b"one"), startpoint.request(ECHO, b"two"))
    print("two at once:", *(answer.decode() for answer in both))
    print("a stream of answers:", *[answer.decode() async for answer in startpoint.stream(COUNT_DOWN, bytes([5]))])


def ask(pipe: Connection) -> None:
    with open_domain(pipe, "answerer", []) as domain, domain.startpoint(pipe.recv_bytes()) as startpoint:
        print("asked over a sealed link, and got:", startpoint.call(ECHO, b"hello", timeout=5).decode())
        asyncio.run(ask_all(startpoint))
        began = time.perf_counter()
        for _ in range(PINGS):
            startpoint.call(ECHO, b"12345678", timeout=5)
        each = (time.perf_counter() - began) / PINGS
        print(f"{PINGS} requests of 8 bytes and their answers: {each * 1e6:.1f} us each")
        try:  # The startpoint's uses are over: its endpoint says so.
            startpoint.call(ECHO, b"more", timeout=5)
        except link.HandlerRefused as refused:
            print("one more:", refused)
        pipe.send_bytes(b"")


if __name__ == "__main__":
    here, there = multiprocessing.Pipe()
    # A domain belongs to its process, so the other one starts afresh.
    other = multiprocessing.get_context("spawn").Process(target=serve, args=(there,))
    other.start()
    ask(here)
    other.join()
