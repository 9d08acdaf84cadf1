"""gambeson.link from an installed wheel, between real processes."""

from __future__ import annotations

import ctypes.util
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from harness.mpis import ROOT
from harness.python import Package

from vectors.directory import sign_directory, site_key

JOB = "link.Trust().job(bytes(16), bytes([1] * 32), bytes(32))"

SERVER = f"""
import sys, time
from gambeson import link

ECHO, RAISE, REFUSE, COUNT, STREAM, WAIT, CANCELLED, WHO, NOTHING, ENDLESS = range(10)
counted = []
cancelled = []

def fail(request):
    return 1 // len(request.payload)

def refuse(request):
    raise link.HandlerRefused("not on Sundays")

def count(request):
    counted.append(len(request.payload))
    return b"%d" % sum(counted)

def stream(request):
    for at in range(request.payload[0]):
        yield bytes([at])

def wait(request):
    deadline = time.monotonic() + 60
    while not request.is_cancelled and time.monotonic() < deadline:
        time.sleep(0.01)
    cancelled.append(request.is_cancelled)

def endless(request):
    try:
        while True:
            yield b"more"
            time.sleep(0.01)
    finally:
        cancelled.append(True)

def who(request):
    peer = request.peer
    return f"{{peer.name}} {{peer.roles}} {{len(peer.key)}} {{peer.host}}".encode()

handlers = {{
    ECHO: lambda request: request.payload, RAISE: fail, REFUSE: refuse, COUNT: count, STREAM: stream, WAIT: wait,
    CANCELLED: lambda request: b"%d" % sum(cancelled), WHO: who, NOTHING: lambda request: None, ENDLESS: endless,
}}
domain = link.Domain(link.Identity.generate(), {JOB}, listen=["127.0.0.1:0"])
endpoint = domain.endpoint(handlers)
print(bytes(endpoint.startpoint()).hex(), flush=True)
sys.stdin.read()
"""

RAISES = """
def raises(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise SystemExit(f"{kind} was not raised")
"""

# For programs with domains of their own.
DOMAINS = f"""
from gambeson import link

def domain(**options):
    return link.Domain(link.Identity.generate(), {JOB}, **options)
{RAISES}"""

# What the programs below begin with.
CLIENT = f"""
import sys, time
from gambeson import link

ECHO, RAISE, REFUSE, COUNT, STREAM, WAIT, CANCELLED, WHO, NOTHING, ENDLESS = range(10)
domain = link.Domain(link.Identity.generate(), {JOB})
startpoint = domain.startpoint(bytes.fromhex(open("startpoint").read()))

def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)

def cancelled():
    return int(startpoint.call(CANCELLED, timeout=30))
{RAISES}"""


class Room:
    """A folder with a server beside it."""

    def __init__(self, package: Package, folder: Path) -> None:
        self.package = package
        self.folder = folder
        (folder / "server.py").write_text(SERVER)
        self.server = subprocess.Popen(
            [package.python, "server.py"],
            cwd=folder,
            env=package.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.server.stdout is not None
        (folder / "startpoint").write_text(self.server.stdout.readline())

    def run(self, program: str) -> None:
        self.package.run(CLIENT + program, self.folder)


@pytest.fixture
def room(package: Package, tmp_path: Path) -> Iterator[Room]:
    made = Room(package, tmp_path)
    yield made
    made.server.kill()
    made.server.wait()


def test_requests_answers_and_streams(room: Room) -> None:
    room.run("""
import array, concurrent.futures
assert startpoint.call(ECHO, b"hello", timeout=30) == b"hello"
assert startpoint.call(ECHO) == b""
big = bytes(range(256)) * 10_000
for payload in (big, bytearray(big), memoryview(big), memoryview(big)[1000:], array.array("d", [1.0, 2.0])):
    assert startpoint.call(ECHO, payload, timeout=30) == bytes(payload)
raises(BufferError, lambda: startpoint.call(ECHO, memoryview(big)[::2]))
raises(TypeError, lambda: startpoint.call(ECHO, "text"))
room = bytearray(10)
assert startpoint.call_into(ECHO, b"hello", room, timeout=30) == 5 and room == b"hello" + bytes(5)
assert "has room for 10" in raises(BufferError, lambda: startpoint.call_into(ECHO, bytes(11), room, timeout=30))
raises(BufferError, lambda: startpoint.call_into(ECHO, b"hello", bytes(10), timeout=30))
for _ in range(10):
    startpoint.send(COUNT, big, timeout=30)
startpoint.post(COUNT, b"1")
startpoint.flush(timeout=30)
until(lambda: int(startpoint.call(COUNT, timeout=30)) == 10 * len(big) + 1)
futures = [startpoint.submit(ECHO, b"%d" % at) for at in range(100)]
done, rest = concurrent.futures.wait(futures, timeout=30)
assert not rest and [future.result() for future in futures] == [b"%d" % at for at in range(100)]
assert list(startpoint.stream(STREAM, bytes([5]), timeout=30)) == [bytes([at]) for at in range(5)]
name, *rest = startpoint.call(WHO, timeout=30).decode().split(" (")
assert name == "a process of the job", name
""")


def test_several_buffers_are_one_message(room: Room) -> None:
    room.run("""
import array, asyncio
rows = [array.array("d", range(at, at + 1000)) for at in range(30)]
whole = b"".join(map(bytes, rows))
for message in ([b"head", bytearray(b" and "), memoryview(b"body")], (b"", b""), [], rows, [b"head", *rows]):
    expected = b"".join(map(bytes, message))
    assert startpoint.call(ECHO, message, timeout=30) == expected
    assert startpoint.submit(ECHO, message).result(timeout=30) == expected
into = bytearray(len(whole))
assert startpoint.call_into(ECHO, rows, into, timeout=30) == len(whole) and into == whole
assert list(startpoint.stream(STREAM, [b"", bytes([3])], timeout=30)) == [b"\\0", b"\\1", b"\\2"]
assert asyncio.run(startpoint.request(ECHO, rows, timeout=30)) == whole
startpoint.send(COUNT, rows, timeout=30)
startpoint.post(COUNT, [b"1", b"2"])
until(lambda: int(startpoint.call(COUNT, timeout=30)) == len(whole) + 2)
for wrong in ("text", ["text"], [b"bytes", 5], 5, None, [[b"nested"]]):
    raises(TypeError, lambda: startpoint.call(ECHO, wrong))
raises(BufferError, lambda: startpoint.call(ECHO, [b"ab", memoryview(b"abcd")[::2]]))
""")


def test_a_message_is_packed_bit_by_bit(room: Room) -> None:
    room.run("""
import array, asyncio, gc, threading
rows = [array.array("d", range(at, at + 2500)) for at in range(30)]
whole = b"".join(map(bytes, rows))

def packed(handler, parts):
    pack = startpoint.pack(handler, sum(len(bytes(part)) for part in parts))
    for part in parts:
        pack.put(part, timeout=30)
    return pack

for parts in ([], [b"short"], rows, [b"head", *rows, b"end"], [bytes([at]) for at in range(250)] * 100):
    expected = b"".join(map(bytes, parts))
    assert packed(ECHO, parts).call(timeout=30) == expected
    assert packed(ECHO, parts).submit().result(timeout=30) == expected
    assert asyncio.run(packed(ECHO, parts).request(timeout=30)) == expected
assert list(packed(STREAM, [bytes([3])]).stream(timeout=30)) == [b"\\0", b"\\1", b"\\2"]
packed(COUNT, rows).send(timeout=30)
until(lambda: int(startpoint.call(COUNT, timeout=30)) == len(whole))

with startpoint.pack(COUNT, len(whole)) as pack:
    pack.put(whole[:-1])
    assert "send or drop that first" in raises(link.MessageUnfit, lambda: startpoint.call(ECHO, timeout=30))
    assert "was to have" in raises(link.MessageUnfit, lambda: pack.put(b"12"))
    told = []
    thread = threading.Thread(target=lambda: told.append(raises(link.MessageUnfit, lambda: pack.put(b"1"))))
    thread.start()
    thread.join()
    assert "another thread" in told[0]
    short = startpoint.pack(COUNT, 2)
    short.put(b"1")
    assert "1 bytes were put" in raises(link.MessageUnfit, short.call)
# What was not sent was given up, and the link is free again.
assert "given up" in raises(link.MessageUnfit, lambda: pack.put(b"1"))
startpoint.pack(COUNT, 100_000).put(bytes(50_000))
gc.collect()
assert int(startpoint.call(COUNT, timeout=30)) == len(whole)
""")


def test_asyncio(room: Room) -> None:
    room.run("""
import asyncio

async def main():
    answers = await asyncio.gather(*(startpoint.request(ECHO, bytes([at])) for at in range(50)))
    assert answers == [bytes([at]) for at in range(50)]
    came = [answer async for answer in startpoint.stream(STREAM, bytes([20]), timeout=30)]
    assert came == [bytes([at]) for at in range(20)]
    try:
        await startpoint.request(RAISE)
    except link.HandlerRefused as error:
        assert "ZeroDivisionError" in str(error)
    else:
        raise SystemExit("it did not fail")
    try:
        await startpoint.request(WAIT, timeout=0.05)
    except link.TimedOut as error:
        assert "0.05 s" in str(error)
    else:
        raise SystemExit("it was answered")
    task = asyncio.create_task(startpoint.request(WAIT))
    await asyncio.sleep(0.2)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass
    with startpoint.stream(ENDLESS, timeout=30) as answers:
        assert await anext(answers) == b"more"

asyncio.run(main())
until(lambda: cancelled() == 3)
""")


def test_what_goes_wrong_is_said_and_what_nobody_waits_for_is_cancelled(room: Room) -> None:
    room.run("""
import concurrent.futures
assert raises(link.HandlerRefused, lambda: startpoint.call(RAISE)).startswith("ZeroDivisionError: integer division")
assert raises(link.HandlerRefused, lambda: startpoint.call(REFUSE)) == "not on Sundays"
assert "gave no answer" in raises(link.HandlerRefused, lambda: startpoint.call(NOTHING))
assert "no handler 99" in raises(link.HandlerRefused, lambda: startpoint.call(99))
assert "ZeroDivision" in str(startpoint.submit(RAISE).exception(timeout=30))
assert "within 0.05 s" in raises(link.TimedOut, lambda: startpoint.call(WAIT, timeout=0.05))
raises(TimeoutError, lambda: startpoint.call(WAIT, timeout=0.05))
raises(ValueError, lambda: startpoint.call(ECHO, timeout=-1))
until(lambda: cancelled() == 2)
future = startpoint.submit(WAIT)
assert future.cancel() and future.cancelled() and future.cancel()
concurrent.futures.wait([future], timeout=30)
until(lambda: cancelled() == 3)
raises(concurrent.futures.CancelledError, future.result)
answers = startpoint.stream(ENDLESS, timeout=30)
assert next(answers) == b"more"
answers.close()
assert list(answers) == []
until(lambda: cancelled() == 4)
import pickle
for secret in (startpoint, startpoint.capability, link.Identity.generate()):
    assert "not pickled" in raises(TypeError, lambda: pickle.dumps(secret))
under_way = startpoint.submit(WAIT)
domain.close()
assert isinstance(under_way.exception(timeout=30), link.Lost)
raises(link.Lost, lambda: startpoint.call(ECHO))
raises(ConnectionError, lambda: domain.endpoint({}))
""")


def test_what_is_refused_is_counted_by_its_reason(package: Package, tmp_path: Path) -> None:
    package.run(
        f"""
import time
{DOMAINS}
with domain(listen=["127.0.0.1:0"]) as server, domain() as client:
    endpoint = server.endpoint({{0: lambda request: b"", 1: lambda request: b""}})
    assert server.refusals() == link.Refusals(0, 0, 0, {{}})
    once = client.startpoint(endpoint.startpoint(link.Caveat.uses(1), link.Caveat.methods([0])))
    once.call(0, timeout=30)
    for _ in range(3):
        raises(link.HandlerRefused, lambda: once.call(0, timeout=30))
    raises(link.HandlerRefused, lambda: once.call(1, timeout=30))
    late = client.startpoint(endpoint.startpoint(link.Caveat.expires(time.time() - 10)))
    raises(link.StartpointRefused, lambda: late.call(0, timeout=30))
    stranger = link.Domain(link.Identity.generate(), link.Trust().pinned(server.key_hash, "server"), silence=1)
    raises(link.Error, lambda: stranger.startpoint(endpoint.startpoint(), timeout=5))
    refusals = server.refusals()
    assert refusals.of(link.Refusal.USED_UP) == 3 and refusals.of(link.Refusal.METHOD) == 1
    assert refusals.of(link.Refusal.EXPIRED) == 1 and refusals.of(link.Refusal.REVOKED) == 0
    assert set(refusals.startpoints) == {{link.Refusal.USED_UP, link.Refusal.METHOD, link.Refusal.EXPIRED}}
    assert refusals.connections > 0 and refusals.tampered == 0
    raises(link.StartpointRefused, lambda: client.attach(server.listening[0], "nothing", key=server.key_hash))
    assert server.refusals().names == 1
    assert client.refusals() == link.Refusals(0, 0, 0, {{}})
""",
        tmp_path,
    )


def test_a_policy_says_how_links_are_protected(package: Package, tmp_path: Path) -> None:
    package.run(
        f"""
import os
from pathlib import Path
{DOMAINS}
PRIVACY, INTEGRITY, NONE = link.Protection
path = Path("gambeson.toml")
path.write_text('protection = "none"\\n[[rule]]\\nbetween = ["10.1.0.0/16", "10.2.0.0/16"]\\nclass = "fluxes"\\n'
                'protection = "integrity"\\n')
path.chmod(0o666)
assert "can be written by others" in raises(link.PolicyUnusable, lambda: link.Policy.read(path))
path.chmod(0o600)
policy = link.Policy.read(path)
assert "here:1" in raises(link.PolicyUnusable, lambda: link.Policy.parse("protection = 'some'", "here"))
assert "nowhere.toml" in raises(ValueError, lambda: link.Policy.read("nowhere.toml"))
raises(ValueError, lambda: domain(policy=policy, weakest=NONE))
raises(ValueError, lambda: domain(address="10.1.2.3:4000"))
assert "gambeson run" in raises(link.IdentityUnusable, link.Domain.from_job)

def protections(server, client):
    found = []
    for name in ("fluxes", "control", "data"):
        endpoint = server.endpoint({{0: lambda request: str(request.peer.address).encode()}}, class_name=name)
        startpoint = client.startpoint(endpoint.startpoint())
        assert startpoint.call(0, timeout=30) == b"10.2.0.1"
        found.append(startpoint.protection)
    return found

here = {{"listen": ["127.0.0.1:0"], "address": "10.1.0.1"}}
for options, expected in (
    ({{}}, [PRIVACY, PRIVACY, PRIVACY]),
    ({{"weakest": NONE}}, [NONE, INTEGRITY, NONE]),
    ({{"policy": policy}}, [INTEGRITY, INTEGRITY, NONE]),
):
    with domain(**here, **options) as server, domain(address="10.2.0.1", **options) as client:
        assert protections(server, client) == expected
with domain(**here, weakest=NONE) as server, domain(address="10.2.0.1", weakest=NONE) as client:
    endpoint = server.endpoint({{0: lambda request: request.payload}}, class_name="fluxes")
    startpoint = client.startpoint(endpoint.startpoint())
    startpoint.call(0, timeout=30)
    server.set_policy(policy)
    assert "integrity" in raises(link.Error, lambda: startpoint.call(0, timeout=30))
    assert "integrity" in raises(link.StartpointRefused, lambda: client.startpoint(endpoint.startpoint()).call(0))
    assert server.refusals().of(link.Refusal.UNPROTECTED) == 1
    client.set_policy(policy)
    assert client.startpoint(endpoint.startpoint()).call(0, b"again", timeout=30) == b"again"
""",
        tmp_path,
    )


def test_a_transport_is_chosen_by_hand(room: Room) -> None:
    room.run("""
import threading
TCP, SHM, FABRIC = link.Transport
assert startpoint.carrier.transport is SHM and startpoint.carrier.text.startswith("shm ")
other = domain.startpoint(startpoint.capability, timeout=30, transport=TCP)
assert other.carrier.transport is TCP and other.carrier.text.startswith("tcp 127.0.0.1:")
assert other.call(ECHO, b"over TCP", timeout=30) == b"over TCP"
assert startpoint.carrier.transport is SHM
# One that is in use.
stop = threading.Event()
counts = []
def ask():
    at = 0
    while not stop.is_set():
        assert startpoint.call(ECHO, b"%d" % at, timeout=30) == b"%d" % at
        at += 1
    counts.append(at)
threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads:
    thread.start()
for transport in (TCP, SHM, TCP, None):
    startpoint.prefer(transport, timeout=30)
    assert startpoint.carrier.transport is (transport or SHM)
stop.set()
for thread in threads:
    thread.join()
assert len(counts) == 4
raises(link.Error, lambda: startpoint.prefer(FABRIC, timeout=5))
raises(link.Error, lambda: domain.startpoint(startpoint.capability, timeout=5, transport=FABRIC))
assert startpoint.carrier.transport is SHM and startpoint.call(ECHO, b"still", timeout=30) == b"still"
""")


@pytest.mark.skipif(ctypes.util.find_library("fabric") is None, reason="there is no libfabric on this host")
def test_libfabric_carries_links(package: Package, tmp_path: Path) -> None:
    package.run(
        f"""
{DOMAINS}
assert "nothing" in raises(link.SystemRefused, lambda: domain(fabric=[("nothing", None)]))
with domain(listen=["127.0.0.1:0"], fabric=[("tcp;ofi_rxm", "127.0.0.1")]) as server, domain() as client:
    endpoint = server.endpoint({{0: lambda request: request.payload}})
    startpoint = client.startpoint(endpoint.startpoint(), timeout=30, transport=link.Transport.FABRIC)
    assert startpoint.carrier.transport is link.Transport.FABRIC and "tcp;ofi_rxm" in startpoint.carrier.text
    assert startpoint.call(0, bytes(100_000), timeout=30) == bytes(100_000)
""",
        tmp_path,
    )


def test_a_server_that_dies_is_lost(room: Room) -> None:
    program = room.folder / "client.py"
    program.write_text(
        CLIENT + "under_way = startpoint.submit(WAIT)\nprint('ready', flush=True)\n"
        "assert isinstance(under_way.exception(timeout=60), link.Lost)\n"
    )
    client = room.package.start(program, cwd=room.folder)
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    room.server.kill()
    _, err = client.communicate(timeout=60)
    assert client.returncode == 0, err


def test_startpoints_are_narrowed_copied_and_revoked(package: Package, tmp_path: Path) -> None:
    package.run(
        f"""
import datetime, time
{DOMAINS}

with domain(listen=["127.0.0.1:0"]) as server, domain() as alice, domain() as bob:
    endpoint = server.endpoint({{0: lambda request: request.payload, 1: lambda request: b"1"}}, class_name="fluxes")
    whole = endpoint.startpoint(link.Caveat.uses(100))
    assert (whole.owner, whole.holder, whole.class_name) == (server.key_hash, None, "fluxes")
    assert server.listening[0].startswith("127.0.0.1:") and alice.listening == []
    tomorrow = datetime.datetime.now() + datetime.timedelta(days=1)
    narrow = whole.narrow(link.Caveat.methods([0]), link.Caveat.uses(1), link.Caveat.expires(tomorrow))
    narrow = narrow.narrow(link.Caveat.memory(1, 0, 8, read=True), link.Caveat.protection(link.Protection.INTEGRITY))
    with alice.startpoint(narrow) as startpoint:
        raises(link.HandlerRefused, lambda: startpoint.call(1))
        startpoint.call(0)
        assert "used up" in raises(link.HandlerRefused, lambda: startpoint.call(0))
    assert "16 caveats" in raises(link.StartpointRefused, lambda: whole.narrow(*[link.Caveat.uses(1)] * 17))
    raises(link.StartpointRefused, lambda: link.Capability.decode(b"nothing"))
    expired = whole.narrow(link.Caveat.expires(time.time() - 10))
    raises(link.StartpointRefused, lambda: alice.startpoint(expired).call(0))
    copy = server.copy_for(whole, alice.key_hash)
    assert copy.holder == alice.key_hash
    further = alice.copy_for(link.Capability.decode(bytes(copy)), bob.key_hash)
    assert bob.startpoint(further).call(0, b"mine") == b"mine"
    assert "bound to another" in raises(link.StartpointRefused, lambda: bob.startpoint(copy))
    used = bob.startpoint(further)
    used.call(0)
    endpoint.revoke(copy)
    assert "revoked" in raises(link.Error, lambda: used.call(0))
    alice.startpoint(whole).call(0)
    raises(ValueError, lambda: server.copy_for(whole, b"short"))
    squeezed = server.endpoint({{0: lambda request: request.payload}}, transforms=["zstd"])
    assert alice.startpoint(squeezed.startpoint()).call(0, bytes(100_000)) == bytes(100_000)
    raises(link.TransformRefused, lambda: server.endpoint({{}}, transforms=["unheard-of"]))
    identity = link.Identity.generate()
    link.Domain(identity, {JOB}).close()
    assert "already" in raises(link.IdentityUnusable, lambda: link.Domain(identity, {JOB}))
    raises(ValueError, lambda: domain(listen=["nowhere"]))
""",
        tmp_path,
    )


def test_groups_are_called_together(package: Package, tmp_path: Path) -> None:
    package.run(
        f"""
import struct
{DOMAINS}

members = []
servers = [domain(listen=["127.0.0.1:0"]) for _ in range(3)]
for at, server in enumerate(servers):
    handlers = {{
        0: lambda request, at=at: struct.pack("<q", at + 1),
        1: lambda request, at=at: 1 // at,
        2: lambda request: None,
    }}
    members.append(server.endpoint(handlers, forwards=True).startpoint())
group = domain().group(members)
assert len(group) == 3
assert group.call(0, timeout=30) == [struct.pack("<q", at) for at in (1, 2, 3)]
assert group.reduce(0, b"", link.Operation.SUM_I64, timeout=30) == struct.pack("<q", 6)
assert group.reduce(0, b"", link.Operation.MAX_I64) == struct.pack("<q", 3)
assert group.send(2, b"one-way", timeout=30) == [None] * 3
first, *rest = group.call(1, timeout=30)
assert isinstance(first, link.HandlerRefused) and "ZeroDivisionError" in str(first), first
try:
    group.reduce(1, b"", link.Operation.CONCATENATE, timeout=30)
except link.HandlerRefused as error:
    assert "ZeroDivisionError" in str(error)
else:
    raise SystemExit("it did not fail")
""",
        tmp_path,
    )


MODULES = """
import zlib

class Numbered(link.Mapping):
    def __init__(self):
        self.out = self.came = 0

    def apply(self, message):
        if message == b"refused":
            raise ValueError("not this one")
        if message == b"reenter":
            startpoint.call(0, b"", timeout=1)
        self.out += 1
        return self.out.to_bytes(4, "big") + zlib.compress(message)

    def restore(self, message, most):
        self.came += 1
        assert int.from_bytes(message[:4], "big") == self.came
        restored = zlib.decompressobj().decompress(message[4:], most + 1)
        return memoryview(restored)

class Numbering(link.Transform):
    name = "numbering"

    def __init__(self, remembers=True):
        self.remembers = remembers
        self.ends = []

    def open(self, end):
        self.ends.append(end)
        return Numbered()
"""


def test_messages_go_through_a_module_of_ones_own(package: Package, tmp_path: Path) -> None:
    package.run(
        f"""
{DOMAINS}
{MODULES}
for manual, remembers in ((False, True), (True, False)):
    module = Numbering(remembers)
    progress = link.Progress.MANUAL if manual else link.Progress.AUTO
    with domain(listen=["127.0.0.1:0"], transforms=[module]) as server:
        endpoint = server.endpoint({{0: lambda request: request.payload}}, transforms=["numbering"])
        with domain(transforms=[module], progress=progress) as client, domain() as other:
            startpoint = client.startpoint(endpoint.startpoint())
            for size in (0, 1, 1000, 1_000_000):
                assert startpoint.call(0, bytes(size), timeout=30) == bytes(size)
            assert startpoint.call(0, [b"several ", b"buffers"], timeout=30) == b"several buffers"
            assert module.ends == [link.End.STARTPOINT, link.End.ENDPOINT]
            assert raises(link.TransformRefused, lambda: startpoint.call(0, b"refused")) == (
                'the transform module "numbering" failed: ValueError: not this one'
            )
            if remembers:
                why = raises(link.TransformRefused, lambda: startpoint.call(0, b"more"))
                assert "bind the startpoint again" in why
                startpoint = client.startpoint(endpoint.startpoint())
            # The domain is locked meanwhile, and says so.
            assert "not threaded" in raises(link.TransformRefused, lambda: startpoint.call(0, b"reenter"))
            assert "numbering" in raises(link.TransformRefused, lambda: other.startpoint(endpoint.startpoint()))
raises(link.TransformRefused, lambda: domain(transforms=[module, module]))
""",
        tmp_path,
    )


def test_threads_modules_and_the_collector_never_wait_for_each_other(package: Package, tmp_path: Path) -> None:
    """Threads that ask, give up, close and leave objects to the collector while both ends' domains run Python."""
    package.run(
        f"""
import gc, sys, threading, time
{DOMAINS}
{MODULES}
sys.setswitchinterval(1e-5)
module = Numbering(False)

def slow(request):
    for at in range(20):
        if request.is_cancelled:
            return
        yield bytes([at]) * 100

server = domain(listen=["127.0.0.1:0"], transforms=[module])
client = domain(transforms=[module])
handlers = {{0: lambda request: request.payload, 1: slow}}
capability = server.endpoint(handlers, transforms=["numbering"]).startpoint()
deadline = time.monotonic() + 3
counts = [0] * 6
wrong = []

def ask(number):
    try:
        while time.monotonic() < deadline:
            startpoint = client.startpoint(capability, timeout=60)
            message = bytes([number]) * (number * 5000)
            assert startpoint.call(0, message, timeout=60) == message
            forgotten = startpoint.submit(0, message)
            startpoint.submit(0, message).cancel()
            stream = startpoint.stream(1, timeout=60)
            assert next(stream) == bytes(100)
            pack = startpoint.pack(0, 50_000)
            pack.put(bytes(10_000))
            group = client.group([capability, capability])
            assert group.call(0, b"each", timeout=60) == [b"each"] * 2
            if number % 2:
                server.endpoint(handlers).startpoint()
                startpoint.close()
            # What is left to the collector is collected by whoever allocates next, perhaps in a module.
            cycle = [startpoint, stream, pack, group, forgotten]
            cycle.append(cycle)
            counts[number] += 1
    except BaseException as error:
        wrong.append(error)
        raise

gc.set_threshold(50)
threads = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
assert not wrong and not any(thread.is_alive() for thread in threads) and all(counts), (wrong, counts)
# It ends in the midst of requests that go through modules.
startpoint = client.startpoint(capability)
threading.Thread(target=lambda: [startpoint.submit(0, bytes(1000)) for _ in range(10_000)], daemon=True).start()
startpoint.call(0, timeout=30)
""",
        tmp_path,
    )


def test_answers_are_combined_by_an_operation_of_ones_own(package: Package, tmp_path: Path) -> None:
    package.run(
        f"""
import threading
{DOMAINS}
combined = []

def join(one, other):
    combined.append(threading.current_thread())
    if b"7" in (one, other):
        return 1 // 0
    return bytearray(one) + b"," + other

operation = link.OwnOperation("join", join)
servers = [domain(listen=["127.0.0.1:0"]) for _ in range(20)]
members = []
for at, server in enumerate(servers):
    handlers = {{0: lambda request, at=at: b"%d" % (at + 10), 1: lambda request, at=at: b"%d" % at}}
    members.append(server.endpoint(handlers, forwards=[operation]).startpoint())
caller = domain()
expected = b",".join(b"%d" % (at + 10) for at in range(20))
for flat in (False, True):
    group = caller.group(members, flat=flat)
    combined.clear()
    assert group.reduce(0, b"", operation, timeout=60) == expected
    assert len(combined) == 19 and (len(set(combined)) == 1) is flat
    why = raises(link.HandlerRefused, lambda: group.reduce(1, b"", operation, timeout=60))
    assert "ZeroDivisionError" in why, why
assert group.reduce(0, b"", link.Operation.CONCATENATE, timeout=60) == expected.replace(b",", b"")
nothing = link.OwnOperation("nothing", lambda one, other: None)
assert "bytes-like" in raises(link.HandlerRefused, lambda: group.reduce(0, b"", nothing, timeout=60))
for name in ("", "+join", "j" * 65):
    raises(ValueError, lambda: group.reduce(0, b"", link.OwnOperation(name, join)))
    raises(ValueError, lambda: caller.endpoint({{}}, forwards=[link.OwnOperation(name, join)]))
""",
        tmp_path,
    )


def test_regions_are_reached_as_far_as_windows_go(package: Package, tmp_path: Path) -> None:
    package.run(
        f"""
{DOMAINS}

with domain(listen=["127.0.0.1:0"]) as server, domain() as client:
    endpoint = server.endpoint({{}})
    region = endpoint.region(b"0123456789abcdef")
    assert len(region) == 16 and len(endpoint.region(5)) == 5 and region.read(14) == b"ef"
    startpoint = client.startpoint(endpoint.startpoint(region.window(4, 8, read=True, write=True)))
    assert startpoint.get(region.number, 4, 8, timeout=30) == b"456789ab"
    startpoint.put(region.number, 4, memoryview(b"PUT"), timeout=30)
    startpoint.submit_put(region.number, 7, b"way").result(timeout=30)
    assert startpoint.submit_get(region.number, 4, 8).result(timeout=30) == b"PUTwayab"
    into = bytearray(6)
    startpoint.get_into(region.number, 4, into, timeout=30)
    assert into == b"PUTway"
    region.write(0, b"new")
    assert region.read() == b"new3PUTwayabcdef"
    assert region.read(3, 2) == b"3P"
    raises(link.StartpointRefused, lambda: region.read(1, 16))
    raises(link.StartpointRefused, lambda: region.read(1 << 40, 1 << 40))
    assert "memory" in raises(link.Error, lambda: startpoint.get(region.number, 0, 8, timeout=30))
    only_read = client.startpoint(endpoint.startpoint(region.window(read=True)))
    assert only_read.get(region.number, 0, 16, timeout=30) == region.read()
    raises(link.Error, lambda: only_read.put(region.number, 0, b"no", timeout=30))
""",
        tmp_path,
    )


def certificate(folder: Path, name: str, issuer: str | None) -> None:
    """NAME.pem and NAME.key: an authority's, or one that it signed."""
    subject = ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    files = ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
    if issuer is None:
        more = ["-addext", "basicConstraints=critical,CA:TRUE"]
    else:
        names = f"subjectAltName=DNS:{name}.example,URI:gambeson:role:model"
        more = ["-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key", "-addext", "basicConstraints=critical,CA:FALSE"]
        more += ["-addext", names, "-addext", "extendedKeyUsage=serverAuth,clientAuth"]
    subprocess.run([*subject, *files, *more], cwd=folder, check=True, capture_output=True)


def test_pinned_keys_and_certificates_say_who_is_there(package: Package, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing")
    for name, issuer in (("site", None), ("other", None), ("ocean", "site"), ("ice", "site"), ("stranger", "other")):
        certificate(tmp_path, name, issuer)
    package.run(
        RAISES
        + """
from pathlib import Path
from gambeson import link

def identity(name):
    return link.Identity.from_pem(Path(f"{name}.pem").read_bytes(), Path(f"{name}.key").read_bytes())

def who(request):
    return f"{request.peer.name} {' '.join(request.peer.roles)}".encode()

site = link.Trust().authorities(Path("site.pem").read_bytes())
with link.Domain(identity("ocean"), site, listen=["127.0.0.1:0"]) as ocean:
    secret = bytes(ocean.endpoint({0: who}).startpoint())
    with link.Domain(identity("ice"), site) as ice:
        assert ice.startpoint(secret).call(0, timeout=30) == b"ice.example model dns:ice.example"
    with link.Domain(identity("stranger"), site) as stranger:
        raises(link.Refused, lambda: stranger.startpoint(secret))

alice, bob = link.Identity.generate(), link.Identity.generate()
known = link.Trust().pinned(bob.key_hash, "bob", roles=["reader", "writer"])
with link.Domain(alice, known, listen=["127.0.0.1:0"], shm=False) as server:
    secret = bytes(server.endpoint({0: who}).startpoint())
    with link.Domain(bob, link.Trust().pinned(server.key_hash, "alice")) as client:
        assert client.startpoint(secret).call(0, timeout=30) == b"bob reader writer"
    with link.Domain(link.Identity.generate(), link.Trust().pinned(server.key_hash, "alice")) as stranger:
        raises(link.Refused, lambda: stranger.startpoint(secret))
raises(link.IdentityUnusable, lambda: link.Identity.from_pem(b"none", b"none"))
raises(ValueError, lambda: link.Trust().pinned(b"short", "bob"))
""",
        tmp_path,
    )


WAITS = {
    "call": "startpoint.call(WAIT)",
    "stream": "next(startpoint.stream(WAIT))",
    "connect": "domain.startpoint(unreachable, timeout=None)",
    "progress": "while True: domain.progress(1000)",
}


@pytest.mark.parametrize("wait", WAITS)
def test_an_interrupt_ends_whatever_is_waited_for(room: Room, wait: str) -> None:
    program = room.folder / "waits.py"
    program.write_text(
        CLIENT
        + f"""
import signal, socket
signal.signal(signal.SIGINT, signal.default_int_handler)
# Somebody who takes connections and says nothing.
silent = socket.create_server(("127.0.0.1", 0))
address = silent.getsockname()[1]
with link.Domain(link.Identity.generate(), {JOB}, listen=[f"127.0.0.1:0"], shm=False) as other:
    there = bytes(other.endpoint({{}}).startpoint())
    port = other.listening[0].rpartition(":")[2]
old = bytes([len(f"127.0.0.1:{{port}}")]) + f"127.0.0.1:{{port}}".encode()
new = bytes([len(f"127.0.0.1:{{address}}")]) + f"127.0.0.1:{{address}}".encode()
unreachable = there.replace(old, new)
print("begun", flush=True)
{WAITS[wait]}
"""
    )
    process = room.package.start(program, cwd=room.folder)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert "KeyboardInterrupt" in err, err


def test_a_forked_child_is_told(room: Room) -> None:
    room.run("""
import os
assert startpoint.call(ECHO, b"here", timeout=30) == b"here"
pack = startpoint.pack(ECHO, 20_000)
pack.put(bytes(10_000))
child = os.fork()
if child == 0:
    told = []
    attempts = (
        lambda: startpoint.call(ECHO, b"there", timeout=5),
        lambda: startpoint.submit(ECHO, b"there").result(timeout=5),
        lambda: startpoint.post(ECHO),
        lambda: domain.startpoint(startpoint.capability, timeout=5),
        lambda: domain.endpoint({}),
        lambda: domain.refusals(),
        lambda: domain.set_policy(link.Policy.uniform(link.Protection.NONE)),
        lambda: startpoint.call(ECHO, [b"the", b"re"], timeout=5),
        lambda: startpoint.pack(ECHO, 5),
        lambda: pack.put(bytes(5000), timeout=5),
        lambda: startpoint.carrier,
        lambda: startpoint.prefer(link.Transport.TCP, timeout=5),
    )
    for attempt in attempts:
        try:
            attempt()
        except link.Error as error:
            told.append(str(error))
    pack.close()
    os._exit(0 if len(told) == len(attempts) and all("fork" in what for what in told) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
pack.put(bytes(10_000))
assert pack.call(timeout=30) == bytes(20_000)
assert startpoint.call(ECHO, b"still here", timeout=30) == b"still here"
""")


def test_a_program_ends_in_the_midst_of_it(room: Room) -> None:
    """Nothing hangs or crashes when Python goes down while requests and answers are under way."""
    room.run("""
import threading
futures = [startpoint.submit(WAIT) for _ in range(10)]
endpoint = domain.endpoint({0: lambda request: time.sleep(60)})
threading.Thread(target=lambda: [startpoint.submit(ECHO, bytes(1000)) for _ in range(10_000)], daemon=True).start()
stream = startpoint.stream(ENDLESS)
next(stream)
""")


def test_the_example_runs_as_it_says(package: Package, tmp_path: Path) -> None:
    process = package.start(ROOT / "examples" / "links" / "ping.py", cwd=tmp_path)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "asked over a sealed link, and got: hello" in out
    assert "two at once: one two\na stream of answers: 5 4 3 2 1\n" in out
    assert "us each" in out
    assert "used up" in out


def test_the_example_attaches_by_name_and_nobody_else_does(package: Package, tmp_path: Path) -> None:
    folder = ROOT / "examples" / "links" / "attach"
    subprocess.run(["sh", folder / "keys.sh"], cwd=tmp_path, check=True, capture_output=True, timeout=60)

    def attach(*arguments: str) -> tuple[str, str]:
        process = package.start(folder / "coupler.py", *arguments, cwd=tmp_path)
        return process.communicate(timeout=60)

    model = subprocess.Popen(
        [package.python, folder / "model.py", "127.0.0.1:0"],
        cwd=tmp_path,
        env=package.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert model.stdout is not None
        at = model.stdout.readline().split()[4].removesuffix(";")
        out, err = attach("coupler", at)
        assert out.startswith("the model is at step 1\nthe model is at step 2\nand what was not published:"), out + err
        out, err = attach("visitor", at)
        assert 'has nothing published as "model/ocean" that is for this domain' in err
    finally:
        out, _ = model.communicate("\n", timeout=60)
    assert out == "coupler.example brings 5 joules\ncoupler.example brings 7 joules\n"
    assert "nobody listens there; start what is to be attached to" in attach("coupler", at)[1]


def test_the_site_directory_says_who_is_on_a_host_and_how_links_are_protected(package: Package, tmp_path: Path) -> None:
    seed, now = "01" * 32, int(time.time())
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    text = f"""[[host]]
name = "here"
addresses = ["127.0.0.1"]
transports = ["tcp"]
authentication = ["job"]
attach = {{ addresses = ["127.0.0.1:{port}"], role = "rank" }}

[[network]]
subnet = "127.0.0.0/8"
protection = "integrity"
"""
    for name, expires in (("directory.toml", now + 3600), ("over.toml", now - 60)):
        given = {"site_seed": seed, "issued": now - 7200, "expires": expires, "text": text}
        (tmp_path / name).write_text(sign_directory(given)["directory"])
    public = site_key(seed).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "site.pub").write_bytes(public)
    package.run(
        f"""
import os
from pathlib import Path
os.environ["XDG_STATE_HOME"] = os.getcwd()
{DOMAINS}
files = ("directory.toml", Path("site.pub"))
common = {{"host": "here", "policy": link.Policy.uniform(link.Protection.NONE), "directory": files}}
with domain(listen=["127.0.0.1:{port}"], **common) as server, domain(**common) as client:
    endpoint = server.endpoint({{0: lambda request: request.payload}})
    endpoint.publish("echo", ["rank"])
    attached = client.attach_host("here", "echo", timeout=30)
    assert attached.call(0, b"hello", timeout=30) == b"hello"
    assert attached.protection is link.Protection.INTEGRITY, attached.protection
    assert "there" in raises(link.Error, lambda: client.attach_host("there", "echo"))
with domain(site=True) as elsewhere:
    assert "directory" in raises(link.Error, lambda: elsewhere.attach_host("here", "echo"))
assert "expired" in raises(link.IdentityUnusable, lambda: domain(directory=("over.toml", "site.pub")))
assert "none.toml" in raises(link.IdentityUnusable, lambda: domain(directory=("none.toml", "site.pub")))
""",
        tmp_path,
    )


def test_names_are_published_withdrawn_and_for_those_with_a_role(room: Room) -> None:
    room.run("""
trust = link.Trust().job(bytes(16), bytes([1] * 32), bytes(32))
host = link.Domain(link.Identity.generate(), trust, listen=["127.0.0.1:0"])
at = host.listening[0]
endpoint = host.endpoint({ECHO: lambda request: request.payload, STREAM: lambda request: b"not for all"})
endpoint.publish("a name", ["rank"], link.Caveat.methods([ECHO]))
endpoint.publish("for others", ["coupler"])
for expected in ({"role": "rank"}, {"key": host.key_hash}):
    attached = domain.attach(at, "a name", **expected)
    assert attached.call(ECHO, b"here", timeout=30) == b"here"

assert "does not allow this handler" in raises(link.HandlerRefused, lambda: attached.call(STREAM, b"", timeout=30))
assert "already" in raises(link.StartpointRefused, lambda: endpoint.publish("a name", ["rank"]))
assert "name a role" in raises(link.StartpointRefused, lambda: endpoint.publish("nobody's", []))
assert "list" in raises(TypeError, lambda: endpoint.publish("another", "rank"))
assert "has nothing published" in raises(link.StartpointRefused, lambda: domain.attach(at, "for others", role="rank"))
assert "has nothing published" in raises(link.StartpointRefused, lambda: domain.attach(at, "nothing", role="rank"))
assert "has not the role" in raises(link.Refused, lambda: domain.attach(at, "a name", role="king"))
assert "another process listens there" in raises(link.Refused, lambda: domain.attach(at, "a name", key=bytes(32)))
assert "who is expected" in raises(ValueError, lambda: domain.attach(at, "a name"))
assert "who is expected" in raises(ValueError, lambda: domain.attach(at, "a name", role="rank", key=host.key_hash))
assert "is no address" in raises(link.SystemRefused, lambda: domain.attach("nowhere", "a name", role="rank"))
assert "nobody listens there" in raises(link.Lost, lambda: domain.attach("127.0.0.1:1", "a name", role="rank"))
endpoint.withdraw("a name")
assert "is not published" in raises(link.StartpointRefused, lambda: endpoint.withdraw("a name"))
assert "revoked" in raises(link.HandlerRefused, lambda: attached.call(ECHO, b"here", timeout=30))
assert "has nothing published" in raises(link.StartpointRefused, lambda: domain.attach(at, "a name", role="rank"))
""")
