"""`gambeson proxy`: a pair of proxies in front of real services, with real clients, and somebody in between."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness.mpis import clean_environment

PATIENCE = 30
CANARY = b"the patient in bed seven has a broken heart"


class End:
    """A proxy, or a relay, that runs."""

    def __init__(self, gambeson: Path, place: Path, *words: str, host: Callable[[list[str]], list[str]] = list) -> None:
        self.process = subprocess.Popen(
            host([str(gambeson), *words, "--json"]),
            cwd=place,
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout and self.process.stderr
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(PATIENCE)
            self._reader.join(PATIENCE)
            raise AssertionError(f"no proxy: status {self.process.returncode}: {self.said}")
        ready = json.loads(line)
        self.address = ("nowhere", 0)
        if ready["listening"]:
            address, port = ready["listening"].rsplit(":", 1)
            self.address = (address, int(port))

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.said += line

    def says(self, what: str) -> None:
        until(lambda: what in self.said, lambda: f"{what!r} in {self.said!r}")

    def memory(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found
        return int(found[1]) << 10

    def close(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self.process.stdout and self.process.stderr
        self.process.stdout.close()
        self.process.stderr.close()
        return status


def until(holds: Callable[[], bool], said: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, said()
        time.sleep(0.01)


class Place:
    """Where somebody has the identities of both ends."""

    def __init__(self, gambeson: Path, folder: Path) -> None:
        self.gambeson, self.folder = gambeson, folder
        self.ends = contextlib.ExitStack()
        self.keys = {name: self.keygen(f"{name}.pem") for name in ("near", "far", "stranger")}

    def __call__(self, *words: str, command: str = "proxy") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.gambeson), command, *words],
            cwd=self.folder,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def keygen(self, name: str) -> str:
        made = json.loads(self("keygen", name, "--json").stdout)
        assert made["file"] == name and len(made["key"]) == 64
        return str(made["key"])

    def refuses(self, status: int, *words: str, command: str = "proxy") -> str:
        done = self(*words, command=command)
        assert done.returncode == status and done.stdout == "", done
        return done.stderr

    def end(self, *words: str, host: Callable[[list[str]], list[str]] = list) -> End:
        end = End(self.gambeson, self.folder, *words, host=host)
        self.ends.callback(end.close)
        return end

    def serve(self, service: tuple[str, int], *more: str, listen: str = "127.0.0.1:0") -> End:
        accept = f"{self.keys['near']}=laptop"
        words = ("--identity", "far.pem", "--listen", listen, "--service", text(service), "--accept", accept)
        return self.end("proxy", "serve", *words, *more)

    def connect(self, to: tuple[str, int], *more: str) -> End:
        words = ("--identity", "near.pem", "--listen", "0", "--to", text(to), "--expect", self.keys["far"])
        return self.end("proxy", "connect", *words, *more)

    def pair(self, service: tuple[str, int], *more: str) -> tuple[End, End]:
        far = self.serve(service, *more)
        return far, self.connect(far.address, *more)


def text(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


@pytest.fixture
def place(gambeson: Path, tmp_path: Path) -> Iterator[Place]:
    place = Place(gambeson, tmp_path)
    with place.ends:
        yield place


@contextlib.contextmanager
def service(serve: Callable[[socket.socket], None], buffer: int | None = None) -> Iterator[tuple[str, int]]:
    """A service of one function, which has each connection on a thread of its own."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    if buffer:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = listener.accept()
                threading.Thread(target=serve, args=(one,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@contextlib.contextmanager
def web(folder: Path) -> Iterator[tuple[str, int]]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 256

    server = Server(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield ("127.0.0.1", server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def everything(one: socket.socket) -> bytes:
    """All that comes until the other end has finished."""
    one.settimeout(PATIENCE)
    return b"".join(iter(lambda: one.recv(1 << 16), b""))


def exactly(one: socket.socket, count: int) -> bytes:
    came = b""
    while len(came) < count and (piece := one.recv(count - len(came))):
        came += piece
    return came


def send_all(one: socket.socket, pieces: bytes) -> None:
    with contextlib.suppress(OSError):
        one.sendall(pieces)


def reset(one: socket.socket) -> None:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def client(near: End) -> socket.socket:
    return socket.create_connection(near.address, timeout=PATIENCE)


def echo(one: socket.socket) -> None:
    with one, contextlib.suppress(OSError):
        while piece := one.recv(1 << 16):
            one.sendall(piece)


def digest_of_all(one: socket.socket) -> None:
    """Answers when its client has finished, and not before."""
    with one:
        one.sendall(hashlib.sha256(everything(one)).digest())


class Between:
    """Somebody on the way between the proxies: hears all, and may alter it."""

    def __init__(self, to: tuple[str, int], alter: Callable[[bytes], bytes] = lambda piece: piece) -> None:
        self.to, self.alter = to, alter
        self.heard = bytearray()
        self.mute: set[socket.socket] = set()
        self.connections = 0
        self.open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                other = socket.create_connection(self.to)
                self.connections += 1
                self.open += [one, other]
                for pair in ((one, other), (other, one)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := one.recv(1 << 16):
                self.heard += piece
                if one in self.mute:
                    continue
                other.sendall(self.alter(piece))
        for ended in (one, other):
            with contextlib.suppress(OSError):
                ended.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        for one in self.open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self.open.clear()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()


@contextlib.contextmanager
def between(to: tuple[str, int], alter: Callable[[bytes], bytes] = lambda piece: piece) -> Iterator[Between]:
    somebody = Between(to, alter)
    try:
        yield somebody
    finally:
        somebody.close()


def test_downloads_are_what_they_are_for_many_clients_at_once(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "web"
    folder.mkdir()
    files = {size: random.Random(size).randbytes(size) for size in (0, 1, 65_535, 65_536, 65_537, 1 << 20, 20 << 20)}
    for size, content in files.items():
        (folder / str(size)).write_bytes(content)
    with web(folder) as address:
        _, near = place.pair(address)

        def download(size: int) -> bytes:
            with urllib.request.urlopen(f"http://{text(near.address)}/{size}", timeout=PATIENCE) as answer:
                return bytes(answer.read())

        for size, content in files.items():
            assert download(size) == content
        sizes = [size for size in files for _ in range(6)]
        with ThreadPoolExecutor(len(sizes)) as pool:
            for size, got in zip(sizes, pool.map(download, sizes), strict=True):
                assert got == files[size]
    assert near.said == ""


def is_left_with_few(threads: Path) -> bool:
    return len(list(threads.iterdir())) < 10


def test_hundreds_of_connections_go_on_beside_one_another(place: Place) -> None:
    with service(echo) as address:
        far, near = place.pair(address)
        with contextlib.ExitStack() as open_ones:
            ones = [open_ones.enter_context(client(near)) for _ in range(300)]
            for round in range(3):
                for at, one in enumerate(ones):
                    one.sendall(b"%d of %d;" % (round, at))
                for at, one in enumerate(ones):
                    expected = b"%d of %d;" % (round, at)
                    assert exactly(one, len(expected)) == expected
        # Nothing is left of them.
        for end in (far, near):
            threads = Path(f"/proc/{end.process.pid}/task")
            until(functools.partial(is_left_with_few, threads), lambda: "the threads of 300 connections")


def test_connections_beyond_the_bound_wait_at_the_near_end_and_are_refused_at_the_far(place: Place) -> None:
    with service(echo) as address:
        far = place.serve(address, "--connections", "2")
        near = place.connect(far.address, "--connections", "1")
        wide = place.connect(far.address)
        with client(near) as first, client(near) as second:
            for one in (first, second):
                one.sendall(b"here")
            assert exactly(first, 4) == b"here"
            second.settimeout(0.3)
            with pytest.raises(TimeoutError):
                second.recv(4)
            second.settimeout(PATIENCE)
            first.shutdown(socket.SHUT_WR)
            assert everything(first) == b""
            assert exactly(second, 4) == b"here"
            with client(wide) as third:
                third.sendall(b"here")
                assert exactly(third, 4) == b"here"
                with client(wide) as fourth, pytest.raises(ConnectionResetError):
                    everything(fourth)
    wide.says("the far end carries 2 connections, and no more (--connections)")


@pytest.mark.parametrize("size", [0, 5, 3 << 20])
def test_a_client_that_has_finished_still_gets_its_answer(place: Place, size: int) -> None:
    sent = random.Random(size).randbytes(size)
    with service(digest_of_all) as address:
        _, near = place.pair(address)
        with client(near) as one:
            one.sendall(sent)
            one.shutdown(socket.SHUT_WR)
            assert everything(one) == hashlib.sha256(sent).digest()


def test_a_service_that_has_finished_still_hears_its_client(place: Place) -> None:
    heard: list[bytes] = []

    def greet(one: socket.socket) -> None:
        with one:
            one.sendall(b"welcome")
            one.shutdown(socket.SHUT_WR)
            heard.append(everything(one))

    with service(greet) as address:
        _, near = place.pair(address)
        with client(near) as one:
            assert everything(one) == b"welcome"
            one.sendall(b"there you are")
            one.shutdown(socket.SHUT_WR)
            until(lambda: heard == [b"there you are"], lambda: repr(heard))


@pytest.mark.parametrize("finished", [False, True])
def test_a_reset_of_the_service_is_no_end_of_file(place: Place, finished: bool) -> None:
    def break_off(one: socket.socket) -> None:
        one.sendall(b"half of it")
        if finished:
            everything(one)
        else:
            exactly(one, 4)
        reset(one)

    with service(break_off) as address:
        far, near = place.pair(address)
        with client(near) as one:
            assert exactly(one, 10) == b"half of it"
            one.sendall(b"more")
            if finished:
                one.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionResetError):
                everything(one)
        for end in (far, near):
            end.says(f"the service at {text(address)} has reset the connection")


def test_a_reset_of_the_client_reaches_the_service(place: Place) -> None:
    heard: list[object] = []

    def listen(one: socket.socket) -> None:
        with one:
            try:
                heard.append(everything(one))
            except OSError as error:
                heard.append(type(error))

    with service(listen) as address:
        far, near = place.pair(address)
        one = client(near)
        one.sendall(b"half of it")
        time.sleep(0.1)
        reset(one)
        until(lambda: len(heard) == 1, lambda: "the service heard nothing")
        assert heard == [ConnectionResetError]
        # Who resets knows why.
        assert near.said == far.said == ""


def test_a_service_that_is_down_is_a_reset_and_a_sentence(place: Place) -> None:
    with service(echo) as address:
        pass
    far, near = place.pair(address)
    with client(near) as one, pytest.raises(ConnectionResetError):
        everything(one)
    why = f"the service at {text(address)} refuses connections; is it running?"
    near.says(f" was reset: {why}")
    far.says(f"a connection of laptop has ended: {why}")


def test_a_stalled_connection_is_held_back_and_holds_up_no_other(place: Place) -> None:
    stalled = threading.Event()

    def serve(one: socket.socket) -> None:
        if exactly(one, 4) == b"stop":
            stalled.wait(PATIENCE)
            one.sendall(b"%d" % len(everything(one)))
            one.close()
        else:
            echo(one)

    def push(one: socket.socket, block: bytes) -> int:
        sent = 0
        one.settimeout(1)
        with contextlib.suppress(TimeoutError):
            while sent < 200 << 20:
                sent += one.send(block)
        return sent

    with service(serve, 1 << 16) as address:
        far, near = place.pair(address)
        before = near.memory() + far.memory()
        with contextlib.ExitStack() as open_ones:
            slow = [open_ones.enter_context(client(near)) for _ in range(4)]
            for one in slow:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
                one.sendall(b"stop")
            sent = [push(one, b"x" * 65_536) for one in slow]
            # A window of the link, and what kernels keep.
            assert all(1 << 20 <= many < 24 << 20 for many in sent), sent
            assert near.memory() + far.memory() - before < 32 << 20
            with client(near) as one:
                one.sendall(b"echo" + b"y" * (4 << 20))
                one.shutdown(socket.SHUT_WR)
                assert len(everything(one)) == 4 << 20
            stalled.set()
            for one, many in zip(slow, sent, strict=True):
                one.shutdown(socket.SHUT_WR)
                assert everything(one) == b"%d" % many


def test_a_client_that_reads_nothing_is_held_back_and_holds_up_no_other(place: Place) -> None:
    sent: list[int] = []

    def flood(one: socket.socket) -> None:
        if exactly(one, 4) == b"echo":
            echo(one)
            return
        one.settimeout(1)
        many = 0
        with contextlib.suppress(OSError):
            while many < 200 << 20:
                many += one.send(b"x" * 65_536)
        sent.append(many)
        one.close()

    with service(flood) as address:
        far, near = place.pair(address)
        before = near.memory() + far.memory()
        with client(near) as slow:
            slow.sendall(b"more")
            until(lambda: len(sent) == 1, lambda: "it is never held back")
            assert sent[0] < 24 << 20
            assert near.memory() + far.memory() - before < 16 << 20
            with client(near) as one:
                one.sendall(b"echo" + b"y" * (4 << 20))
                one.shutdown(socket.SHUT_WR)
                assert len(everything(one)) == 4 << 20
            assert len(everything(slow)) == sent[0]


@pytest.mark.parametrize("protection", ["privacy", "integrity", "none"])
def test_who_listens_between_the_proxies_hears_only_what_the_policy_lets(place: Place, protection: str) -> None:
    policy = place.folder / "policy.toml"
    policy.write_text(f'[[rule]]\nclass = "proxy"\nbetween = ["*", "*"]\nprotection = "{protection}"\n')
    said = CANARY * 1000
    with service(echo) as address:
        far = place.serve(address, "--policy", str(policy))
        with between(far.address) as listener:
            near = place.connect(listener.address, "--policy", str(policy))
            with client(near) as one:
                one.sendall(said)
                one.shutdown(socket.SHUT_WR)
                assert everything(one) == said
            assert len(listener.heard) > 2 * len(said)
            assert (CANARY in listener.heard) == (protection != "privacy")


@pytest.mark.parametrize("weak", ["near", "far"])
def test_what_one_end_asks_for_holds_for_both(place: Place, weak: str) -> None:
    policy = place.folder / "weak.toml"
    policy.write_text('[[rule]]\nclass = "proxy"\nbetween = ["*", "*"]\nprotection = "none"\n')
    words = {weak: ("--policy", str(policy))}
    with service(echo) as address:
        far = place.serve(address, *words.get("far", ()))
        with between(far.address) as listener:
            try:
                near = place.connect(listener.address, *words.get("near", ()))
            except AssertionError as refused:
                # On a busy machine it hears of that before it listens.
                assert weak == "near" and "links of class proxy between" in str(refused)
                assert CANARY not in listener.heard
                return
            with client(near) as one:
                one.sendall(CANARY)
                if weak == "near":
                    with pytest.raises(ConnectionResetError):
                        everything(one)
                    near.says("links of class proxy between")
                else:
                    assert exactly(one, len(CANARY)) == CANARY
            assert CANARY not in listener.heard


def test_connections_outlive_a_cut_between_the_proxies(place: Place) -> None:
    sent = random.Random(0).randbytes(8 << 20)
    with service(echo) as address:
        far = place.serve(address)
        with between(far.address) as somebody:
            near = place.connect(somebody.address)
            with client(near) as one:
                sender = threading.Thread(target=one.sendall, args=(sent,), daemon=True)
                sender.start()
                came = exactly(one, 1 << 20)
                somebody.cut()
                assert came + exactly(one, len(sent) - len(came)) == sent
                sender.join(PATIENCE)


@pytest.mark.long
def test_a_way_that_has_silently_gone_is_replaced_before_anybody_needs_it(place: Place) -> None:
    """As a firewall forgets connections that are idle."""
    with service(echo) as address:
        far = place.serve(address)
        with between(far.address) as somebody:
            near = place.connect(somebody.address)
            somebody.mute.update(somebody.open)
            until(lambda: somebody.connections > 1, lambda: "nobody has noticed")
            with client(near) as one:
                one.settimeout(2)
                one.sendall(b"here")
                assert exactly(one, 4) == b"here"


@pytest.mark.parametrize("seed", range(3))
def test_what_is_altered_on_the_way_never_arrives(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    flips = 0
    calm = True

    def flip(piece: bytes) -> bytes:
        nonlocal flips
        if calm or chance.random() > 0.1:
            return piece
        flips += 1
        altered = bytearray(piece)
        altered[chance.randrange(len(piece))] ^= 1 << chance.randrange(8)
        return bytes(altered)

    sent = chance.randbytes(8 << 20)
    with service(echo) as address:
        far = place.serve(address)
        with between(far.address, flip) as somebody:
            near = place.connect(somebody.address)
            with client(near) as one:
                calm = False
                sender = threading.Thread(target=send_all, args=(one, sent), daemon=True)
                sender.start()
                came = bytearray()
                with contextlib.suppress(ConnectionResetError):
                    while len(came) < len(sent) and (piece := one.recv(1 << 16)):
                        came += piece
                # What was altered is sent again, as long as it is not altered again and again.
                assert came == sent[: len(came)]
                assert flips > 0
                assert "tampered with" in near.said + far.said


def test_a_handshake_that_is_altered_comes_to_nothing(place: Place) -> None:
    def flip(piece: bytes) -> bytes:
        return bytes([*piece[:-1], piece[-1] ^ 1])

    with service(echo) as address:
        far = place.serve(address)
        with between(far.address, flip) as somebody:
            to = ("--listen", "0", "--to", text(somebody.address), "--expect", place.keys["far"])
            said = place.refuses(70, "connect", "--identity", "near.pem", *to)
            assert said.startswith(f"gambeson: {text(somebody.address)} is not used: ")


def test_a_far_end_that_is_killed_resets_and_one_that_comes_back_serves(place: Place) -> None:
    with service(echo) as address:
        far, near = place.pair(address)
        with client(near) as one:
            one.sendall(b"here")
            assert exactly(one, 4) == b"here"
            far.process.kill()
            with pytest.raises(ConnectionResetError):
                everything(one)
        place.serve(address, listen=text(far.address))
        with client(near) as one:
            one.sendall(b"here")
            assert exactly(one, 4) == b"here"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_near_end_that_ends_resets_what_it_carried(place: Place, how: signal.Signals) -> None:
    heard: list[object] = []

    def listen(one: socket.socket) -> None:
        with one:
            try:
                heard.append(everything(one))
            except OSError as error:
                heard.append(type(error))

    with service(listen) as address:
        far, near = place.pair(address)
        with client(near) as one:
            one.sendall(b"here")
            time.sleep(0.2)
            near.process.send_signal(how)
            with pytest.raises(ConnectionResetError):
                everything(one)
        assert near.close() == (0 if how == signal.SIGTERM else -signal.SIGKILL)
        if how == signal.SIGTERM:
            until(lambda: heard == [ConnectionResetError], lambda: repr(heard))
        assert far.close() == 0
        until(lambda: heard == [ConnectionResetError], lambda: repr(heard))


def test_who_is_not_who_was_expected_is_refused(place: Place) -> None:
    with service(echo) as address:
        far = place.serve(address)
        to = ("--listen", "0", "--to", text(far.address))
        stranger = place.keys["stranger"]
        said = place.refuses(70, "connect", "--identity", "near.pem", *to, "--expect", stranger)
        assert said.startswith(f"gambeson: {text(far.address)} is not used: ") and said.count("\n") == 1
        assert "certificate" in said or "key" in said
        said = place.refuses(70, "connect", "--identity", "stranger.pem", *to, "--expect", place.keys["far"])
        assert "the other end refuses this one" in said and "its log says why" in said
        far.says("a connection over tcp 127.0.0.1:")


def test_a_near_end_starts_before_the_far_one(place: Place) -> None:
    with service(echo) as address:
        with service(echo) as free:
            pass
        near = place.connect(free)
        near.says("the far end is not there yet")
        place.serve(address, listen=text(free))
        with client(near) as one:
            one.sendall(b"here")
            assert exactly(one, 4) == b"here"


def test_what_cannot_be_is_said_in_a_sentence(place: Place) -> None:
    far, near = place.keys["far"], place.keys["near"]
    serve = ("serve", "--listen", "127.0.0.1:0", "--service", "127.0.0.1:9", "--accept", near)
    connect = ("connect", "--to", "127.0.0.1:9", "--expect", far)

    assert "near.pem is there already" in place.refuses(70, "keygen", "near.pem")
    assert "no/near.pem cannot be written" in place.refuses(71, "keygen", "no/near.pem")
    assert (place.folder / "near.pem").stat().st_mode & 0o777 == 0o600

    said = place.refuses(69, *serve, "--identity", "nobody.pem")
    assert "nobody.pem cannot be read" in said and "`gambeson proxy keygen`" in said
    (place.folder / "nonsense.pem").write_text("nonsense")
    assert "nonsense.pem holds no private key" in place.refuses(70, *serve, "--identity", "nonsense.pem")
    open_one = place.folder / "open.pem"
    open_one.write_bytes((place.folder / "far.pem").read_bytes())
    open_one.chmod(0o640)
    assert "is open to others (mode 0640)" in place.refuses(70, *serve, "--identity", "open.pem")

    assert "64 hexadecimal digits" in place.refuses(64, *serve, "--identity", "far.pem", "--accept", "abc=x")
    assert "the name behind =" in place.refuses(64, *serve, "--identity", "far.pem", "--accept", f"{near}=")
    assert "give a host" in place.refuses(64, *serve[:3], "--service", "5432", *serve[5:], "--identity", "far.pem")
    assert "--accept" in place.refuses(64, *serve[:5], "--identity", "far.pem")
    assert "give a port" in place.refuses(64, *connect, "--identity", "near.pem", "--listen", "here")
    said = place.refuses(64, *connect, "--identity", "near.pem", "--listen", "0.0.0.0:0")
    assert "other hosts could connect to 0.0.0.0:0" in said and "--allow-other-hosts" in said

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = place.refuses(71, *connect, "--identity", "near.pem", "--listen", str(port))
        assert f"127.0.0.1:{port} cannot be listened on" in said
        words = ("serve", "--service", "127.0.0.1:9", "--accept", near, "--identity", "far.pem")
        assert "cannot listen on" in place.refuses(71, *words, "--listen", f"127.0.0.1:{port}")

    policy = place.folder / "policy.toml"
    policy.write_text('protection = "some"\n')
    assert "policy.toml" in place.refuses(78, *serve, "--identity", "far.pem", "--policy", "policy.toml")


def test_what_leaves_a_host_in_clear_is_said(place: Place) -> None:
    far = place.serve(("192.0.2.1", 9))
    far.says("192.0.2.1:9 is not on this host: what goes there from here is in clear")
    near = place.end(
        *("proxy", "connect", "--identity", "near.pem", "--listen", "0.0.0.0:0", "--allow-other-hosts"),
        *("--to", text(far.address), "--expect", place.keys["far"]),
    )
    near.says(f"other hosts can connect to {text(near.address)}")


def test_no_core_file_and_no_other_process_gets_the_key(place: Place) -> None:
    with service(echo) as address:
        for end in place.pair(address):
            # What is not dumpable belongs to root in /proc.
            assert Path(f"/proc/{end.process.pid}/environ").stat().st_uid == 0
            if os.geteuid() != 0:
                with pytest.raises(PermissionError):
                    Path(f"/proc/{end.process.pid}/mem").read_bytes()


def test_the_benchmark_measures_all_sides(place: Place, gambeson: Path) -> None:
    words = ["bench", "proxy", "--mebibytes", "1", "--rounds", "2", "--no-stunnel", "--json", "values.json"]
    done = subprocess.run(
        [str(gambeson), *words], cwd=place.folder, capture_output=True, text=True, timeout=60, check=True
    )
    assert "medians of the rounds' own ratios\n/ direct" in done.stdout
    sides = json.loads((place.folder / "values.json").read_text())["sides"]
    assert [side["name"] for side in sides] == ["direct", "gambeson"]
    for side in sides:
        for what in ("down", "up", "round_trip", "connection"):
            assert len(side[what]) == 2 and all(value > 0 for value in side[what])
