"""The proxy: accepts what redirect.c leads to it, cuts the streams into messages, lets an attack touch them.

A flow is one direction between two ranks, whatever TCP connection carries it at the time; an attack aims at the n-th
message of a flow. Connections that break on one side are broken on the other, as a router's would be.
"""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType

from attacks import wire
from attacks.wire import Message

_WORD = struct.Struct("<4sBB2s16sii")
_SHOWN_MAX = 64 << 20

FlowName = tuple[int, int]
"""Sender's and receiver's rank."""


class Attack:
    """What a man in the middle does: nothing, here. Kinds of attacks override what they need.

    All methods are called from the proxy's threads. A message given to `message` is replaced by what it returns; a
    float among that is a pause in seconds. `applied` is set once the attack was really carried out.
    """

    applied = False

    def request(self, link: Link, data: bytes) -> bytes | None:
        """The initiator's connection request; `None` swallows it."""
        return data

    def response(self, link: Link, data: bytes) -> bytes | None:
        return data

    def message(self, flow: Flow, index: int, message: Message) -> Sequence[Message | bytes | float]:
        return [message]

    def idle(self, flow: Flow) -> Sequence[Message | bytes]:
        """Nothing came for some time while the attack holds something back."""
        return []

    holds = False
    """Whether `idle` is to be called."""

    def cards(self, rank: int, cards: list[bytes]) -> list[bytes]:
        """Addresses that a rank is about to insert; as many have to come back, of the same length."""
        return cards

    def listening(self, router: Router, rank: int, port: int) -> None:
        """A rank has opened its port."""


@dataclass
class Recording:
    """What a job sent, for use in later ones."""

    flows: dict[FlowName, list[Message]] = field(default_factory=lambda: defaultdict(list))
    cards: list[bytes] = field(default_factory=list)

    def describe(self) -> str:
        return ", ".join(f"{a}->{b}: {len(messages)}" for (a, b), messages in sorted(self.flows.items()))


class Flow:
    """One direction of a link."""

    def __init__(self, link: Link, name: FlowName, source: socket.socket, sink: socket.socket) -> None:
        self.link = link
        self.name = name
        self.source = source
        self.sink = sink
        self.lock = threading.Lock()
        self.blocked = False
        """Nothing is passed on any more."""

    @property
    def router(self) -> Router:
        return self.link.router

    def send(self, data: bytes) -> None:
        with self.lock:
            self.sink.sendall(data)

    def reverse(self) -> Flow:
        return self.link.back if self is self.link.forth else self.link.forth


class Link:
    """One redirected connection: from its initiator to the proxy, from the proxy to where it was meant to go."""

    def __init__(self, router: Router, initiator: socket.socket, target: tuple[str, int], ranks: FlowName) -> None:
        self.router = router
        self.ranks = ranks
        self.initiator = initiator
        family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
        self.acceptor = socket.socket(family, socket.SOCK_STREAM)
        self.acceptor.connect(target)
        for end in (initiator, self.acceptor):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.forth = Flow(self, ranks, initiator, self.acceptor)
        self.back = Flow(self, (ranks[1], ranks[0]), self.acceptor, initiator)

    def run(self) -> None:
        """Passes the request and the response on, then all messages both ways; ends with the connection."""
        attack = self.router.attack
        try:
            request = attack.request(self, self._control(self.initiator))
            if request is None:
                self._wait_for_end()
                return
            self.acceptor.sendall(request)
            response = attack.response(self, self._control(self.acceptor))
            if response is None:
                self._wait_for_end()
                return
            self.initiator.sendall(response)
            if response[1:2] == bytes([wire.NACK]):
                self._wait_for_end()
                return
            self.router.joined(self)
            back = threading.Thread(target=self._pump, args=(self.back,), daemon=True)
            back.start()
            self._pump(self.forth)
            back.join()
        except (OSError, EOFError, struct.error):
            pass
        finally:
            self.close()
            self.router.left(self)

    def close(self, reset: bool = False) -> None:
        for end in (self.initiator, self.acceptor):
            with contextlib.suppress(OSError):
                if reset:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
        if reset or not self.router.running:
            for end in (self.initiator, self.acceptor):
                with contextlib.suppress(OSError):
                    end.close()

    def _control(self, source: socket.socket) -> bytes:
        head = receive(source, wire.REQUEST_LEN)
        (len_,) = struct.unpack_from(">H", head, 2)
        return head + receive(source, len_)

    def _wait_for_end(self) -> None:
        ends = [self.initiator, self.acceptor]
        while self.router.running and not any(hung_up(end) for end in ends):
            time.sleep(0.05)

    def _pump(self, flow: Flow) -> None:
        try:
            self._pump_messages(flow)
        except (OSError, EOFError):
            pass
        finally:
            # One direction's end is not the other's: what is still on its way back must arrive.
            with contextlib.suppress(OSError):
                flow.sink.shutdown(socket.SHUT_WR)

    def _pump_messages(self, flow: Flow) -> None:
        attack, router = self.router.attack, self.router
        while True:
            while attack.holds and not select.select([flow.source], [], [], 0.5)[0]:
                for late in attack.idle(flow):
                    flow.send(late if isinstance(late, bytes) else late.encode())
            base = receive(flow.source, wire.BASE_LEN)
            hdr_size, body_len = wire.head_lens(base)
            if not wire.BASE_LEN <= hdr_size <= 120 or not 0 <= body_len <= _SHOWN_MAX:
                raise EOFError("a sender that garbles its own headers")
            message = Message(base + receive(flow.source, hdr_size - wire.BASE_LEN), receive(flow.source, body_len))
            index = router.count(flow.name, message)
            for item in attack.message(flow, index, message):
                if isinstance(item, float):
                    time.sleep(item)
                elif not flow.blocked:
                    flow.send(item if isinstance(item, bytes) else item.encode())


class Router:
    """The proxy of one job."""

    def __init__(self, attack: Attack | None = None, record: bool = False) -> None:
        self.attack = attack or Attack()
        self.recording = Recording() if record else None
        self.running = True
        self.counts: dict[FlowName, int] = defaultdict(int)
        self.ports: dict[int, int] = {}
        """Port -> rank that listens there."""
        self.addresses: dict[int, tuple[str, int]] = {}
        """Rank -> where it listens."""
        self.flows: dict[FlowName, Flow] = {}
        """Flows of connections that are up."""
        self.all_cards: dict[bytes, None] = {}
        """Every address that was shown, in order."""
        self._lock = threading.Lock()
        self._links: set[Link] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Router:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.running = False
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()

    def count(self, name: FlowName, message: Message) -> int:
        """The index of the next message of a flow."""
        with self._lock:
            index = self.counts[name]
            self.counts[name] += 1
            if self.recording is not None:
                self.recording.flows[name].append(message)
        return index

    def joined(self, link: Link) -> None:
        with self._lock:
            for flow in (link.forth, link.back):
                self.flows[flow.name] = flow

    def left(self, link: Link) -> None:
        with self._lock:
            self._links.discard(link)
            for flow in (link.forth, link.back):
                if self.flows.get(flow.name) is flow:
                    del self.flows[flow.name]

    def _accept(self) -> None:
        while self.running:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            magic, kind, family, port, address, rank, _pid = _WORD.unpack(receive(client, _WORD.size))
            if magic != b"MITM":
                raise EOFError("not from redirect.c")
            (port,) = struct.unpack(">H", port)
            host = str(ipaddress.ip_address(address[: 4 if family == 4 else 16])) if family else ""
            match chr(kind):
                case "c":
                    self._link(client, (host, port), rank)
                case "l":
                    with self._lock:
                        self.ports[port] = rank
                        self.addresses[rank] = (reachable(host), port)
                    self.attack.listening(self, rank, port)
                    client.sendall(b"!")
                    client.close()
                case "a":
                    self._cards(client, rank)
        except (OSError, EOFError, struct.error):
            client.close()

    def _link(self, client: socket.socket, target: tuple[str, int], rank: int) -> None:
        try:
            link = Link(self, client, target, (rank, self.ports.get(target[1], -1)))
        except OSError:
            client.close()
            return
        with self._lock:
            self._links.add(link)
        link.run()

    def _cards(self, client: socket.socket, rank: int) -> None:
        count, len_ = struct.unpack("<II", receive(client, 8))
        data = receive(client, count * len_)
        cards = [data[at : at + len_] for at in range(0, len(data), len_)]
        with self._lock:
            self.all_cards.update(dict.fromkeys(cards))
            if self.recording is not None:
                self.recording.cards += [card for card in cards if card not in self.recording.cards]
        client.sendall(b"".join(self.attack.cards(rank, cards)))
        client.close()


def receive(source: socket.socket, len_: int) -> bytes:
    data = bytearray(len_)
    view = memoryview(data)
    while view:
        some = source.recv_into(view)
        if not some:
            raise EOFError
        view = view[some:]
    return bytes(data)


def hung_up(end: socket.socket) -> bool:
    try:
        return bool(select.select([end], [], [], 0)[0]) and not end.recv(1, socket.MSG_PEEK)
    except (OSError, ValueError):
        return True


def reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
