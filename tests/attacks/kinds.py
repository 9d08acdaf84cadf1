"""The kinds of attacks. Each is made from a seeded generator and what an undisturbed job was seen to send."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attacks import wire
from attacks.proxy import Attack, Flow, FlowName, Link, Recording, Router
from attacks.wire import Message

Items = Sequence[Message | bytes | float]


@dataclass(frozen=True)
class Scene:
    """What an attack may know when it is planned."""

    rng: random.Random
    recording: Recording
    """An earlier job of the same program, number of ranks and MPI."""
    gap_timeout_s: float

    def flow(self) -> FlowName:
        return self.rng.choice(sorted(name for name in self.recording.flows if min(name) >= 0))

    def index(self, name: FlowName, wanted: Callable[[Message], bool] = lambda message: True) -> int:
        """Of a flow's messages one that is wanted: at the beginning and the end more often than their share."""
        fit = [index for index, message in enumerate(self.recording.flows[name]) if wanted(message)]
        if not fit:
            return 0
        part = self.rng.random()
        if part < 0.2:
            fit = fit[:3]
        elif part > 0.85:
            fit = fit[-4:]
        return self.rng.choice(fit)

    def any_message(self, name: FlowName) -> Message:
        return self.rng.choice(self.recording.flows[name])


Plan = Callable[[Scene], Attack]
KINDS: dict[str, Plan] = {}
SURVIVED: set[str] = set()
"""Kinds that put something into the stream without taking anything away: the job has to go on."""


def kind(name: str, *, survived: bool = False) -> Callable[[Plan], Plan]:
    def add(plan: Plan) -> Plan:
        KINDS[name] = plan
        if survived:
            SURVIVED.add(name)
        return plan

    return add


class Aimed(Attack):
    """Something done once, when the aimed-at message comes by."""

    def __init__(self, flow: FlowName, index: int, what: str, act: Callable[[Flow, Message], Items]) -> None:
        self.flow, self.index, self.what, self.act = flow, index, what, act

    def __str__(self) -> str:
        return f"{self.what} at message {self.index} of {self.flow[0]}->{self.flow[1]}"

    def message(self, flow: Flow, index: int, message: Message) -> Items:
        if self.applied or flow.name != self.flow or index < self.index or not self.fits(message):
            return [message]
        self.applied = True
        return self.act(flow, message)

    def fits(self, message: Message) -> bool:
        return True


def aimed(scene: Scene, what: str, act: Callable[[Flow, Message], Items]) -> Aimed:
    flow = scene.flow()
    return Aimed(flow, scene.index(flow), what, act)


def bit_of(rng: random.Random, span: wire.Span) -> int:
    return rng.randrange(span[0] * 8, span[1] * 8)


# --- altered bits


def flip_base(field: str) -> Plan:
    def plan(scene: Scene) -> Attack:
        bit = bit_of(scene.rng, wire.BASE_FIELDS[field])
        return aimed(scene, f"bit {bit} flipped", lambda _, m: [Message(wire.flip(m.head, bit), m.body)])

    return plan


for _field in wire.BASE_FIELDS:
    kind(f"flip core {_field}")(flip_base(_field))


class FlipRecord(Aimed):
    def __init__(self, scene: Scene, field: str, lasting: bool) -> None:
        self.field, self.part, self.lasting = field, scene.rng.random(), lasting
        flow = scene.flow()
        super().__init__(flow, scene.index(flow, self.fits), f"bit of {field} flipped", self.flipped)

    def fits(self, message: Message) -> bool:
        return self.field in wire.record_fields(message.body)

    def flipped(self, _: Flow, message: Message) -> Items:
        start, end = wire.record_fields(message.body)[self.field]
        bit = start * 8 + int(self.part * (end - start) * 8)
        self.what = f"bit {bit} ({self.field}) flipped"
        self.applied = not self.lasting
        return [Message(message.head, wire.flip(message.body, bit))]


def flip_record(field: str, lasting: bool = False) -> Plan:
    return lambda scene: FlipRecord(scene, field, lasting)


for _field in (
    "tag",
    "version",
    "flags",
    "reserved",
    "epoch",
    "connection",
    "sequence",
    "card",
    "policy",
    "envelope",
    "payload tag",
    "payload",
):
    kind(f"flip record {_field}")(flip_record(_field))


class LastingFlip(FlipRecord):
    """From some message on every record of the flow is altered."""

    def flipped(self, flow: Flow, message: Message) -> Items:
        items = super().flipped(flow, message)
        self.seen = True
        return items

    seen = False

    def message(self, flow: Flow, index: int, message: Message) -> Items:
        self.applied = False
        items = super().message(flow, index, message)
        self.applied = self.seen
        return items


kind("flip all")(lambda scene: LastingFlip(scene, scene.rng.choice(["tag", "envelope", "payload"]), True))


class FlipControl(Attack):
    """One bit of a connection's request or response."""

    def __init__(self, scene: Scene, answer: bool) -> None:
        fields = list(wire.REQUEST_FIELDS)
        self.field = scene.rng.choice(fields)
        self.bit = bit_of(scene.rng, wire.REQUEST_FIELDS[self.field])
        self.answer = answer
        self.skip = scene.rng.randrange(2)
        self.flow: FlowName | None = None

    def __str__(self) -> str:
        return f"bit {self.bit} ({self.field}) of a {'response' if self.answer else 'request'} flipped on {self.flow}"

    def change(self, link: Link, data: bytes) -> bytes:
        if self.applied or self.skip:
            self.skip = 0
            return data
        self.applied, self.flow = True, link.ranks
        return wire.flip(data, self.bit) if self.bit < len(data) * 8 else data

    def request(self, link: Link, data: bytes) -> bytes | None:
        return data if self.answer else self.change(link, data)

    def response(self, link: Link, data: bytes) -> bytes | None:
        return self.change(link, data) if self.answer else data


kind("flip request")(lambda scene: FlipControl(scene, False))
kind("flip response")(lambda scene: FlipControl(scene, True))


@kind("forge size")
def forge_size(scene: Scene) -> Attack:
    size = scene.rng.choice([1 << 40, 1 << 40, (1 << 63) - 1, (1 << 64) - 1, 1 << 32, 16, 15, 0])
    head = struct.pack("<Q", size)
    return aimed(scene, f"size {size}", lambda _, m: [Message(m.head[:8] + head + m.head[16:], m.body)])


# --- replayed, spliced, reordered, lost


@kind("replay", survived=True)
def replay(scene: Scene) -> Attack:
    times = scene.rng.choice([1, 1, 1, 2, 30])
    return aimed(scene, f"replayed {times}x", lambda _, m: [m] * (1 + times))


class ReplayLater(Aimed):
    def __init__(self, scene: Scene) -> None:
        flow = scene.flow()
        index = scene.index(flow)
        super().__init__(flow, index, "kept", self.again)
        self.later = index + scene.rng.randint(1, 12)
        self.kept: Message | None = None

    def __str__(self) -> str:
        return f"message {self.index} of {self.flow} replayed after {self.later}"

    def again(self, _: Flow, message: Message) -> Items:
        return [message]

    def message(self, flow: Flow, index: int, message: Message) -> Items:
        if flow.name == self.flow and index == self.index:
            self.kept = message
        if flow.name == self.flow and index >= self.later and self.kept and not self.applied:
            self.applied = True
            return [message, self.kept]
        return [message]


kind("replay later", survived=True)(ReplayLater)


class ReplayFlow(Attack):
    """Everything that a flow carried so far once more."""

    def __init__(self, scene: Scene) -> None:
        self.flow = scene.flow()
        self.index = scene.index(self.flow)
        self.so_far: list[Message] = []

    def __str__(self) -> str:
        return f"all {self.index + 1} messages of {self.flow} so far again"

    def message(self, flow: Flow, index: int, message: Message) -> Items:
        if flow.name != self.flow or self.applied:
            return [message]
        self.so_far.append(message)
        if index < self.index:
            return [message]
        self.applied = True
        return [message, *self.so_far]


kind("replay connection", survived=True)(ReplayFlow)


def old_messages(scene: Scene, flow: FlowName) -> list[Message]:
    """Messages of the earlier job; tagged ones too, where the job was not sealed."""
    return scene.recording.flows[flow]


@kind("old job before", survived=True)
def old_job_before(scene: Scene) -> Attack:
    flow = scene.flow()
    old = old_messages(scene, flow)
    return Aimed(flow, 0, f"{len(old)} messages of an earlier job before the first", lambda _, m: [*old, m])


@kind("old job within", survived=True)
def old_job_within(scene: Scene) -> Attack:
    flow = scene.flow()
    old = old_messages(scene, flow)
    return Aimed(flow, scene.index(flow), f"{len(old)} messages of an earlier job", lambda _, m: [*old, m])


@kind("old record inserted", survived=True)
def old_record_inserted(scene: Scene) -> Attack:
    attack = aimed(scene, "a record of an earlier job inserted", lambda _, m: [old, m])
    old = scene.any_message(attack.flow)
    return attack


@kind("splice")
def splice(scene: Scene) -> Attack:
    flow = scene.flow()
    index = scene.index(flow)
    old = old_messages(scene, flow)[index]
    return Aimed(flow, index, "the record of an earlier job in place of this one", lambda _, m: [old])


class SpliceOn(Attack):
    """From some message on the earlier job's records in place of this one's."""

    def __init__(self, scene: Scene) -> None:
        self.flow = scene.flow()
        self.index = scene.index(self.flow)
        self.old = old_messages(scene, self.flow)

    def __str__(self) -> str:
        return f"the earlier job's messages from {self.index} on in {self.flow}"

    def message(self, flow: Flow, index: int, message: Message) -> Items:
        if flow.name != self.flow or index < self.index:
            return [message]
        self.applied = True
        return [self.old[index]] if index < len(self.old) else []


kind("splice on")(SpliceOn)


class Reorder(Attack):
    """Holds some messages back, then lets them go in another order."""

    def __init__(self, scene: Scene, count: int) -> None:
        self.flow = scene.flow()
        self.index = scene.index(self.flow)
        self.count, self.rng = count, scene.rng
        self.held: list[Message] = []

    def __str__(self) -> str:
        return f"{self.count} messages from {self.index} on reordered in {self.flow}"

    def message(self, flow: Flow, index: int, message: Message) -> Items:
        if flow.name != self.flow or index < self.index or self.applied:
            return [message]
        self.held.append(message)
        self.holds = True
        return self.let_go() if len(self.held) == self.count else []

    def idle(self, flow: Flow) -> Sequence[Message | bytes]:
        return self.let_go() if flow.name == self.flow else []

    def let_go(self) -> list[Message]:
        held, self.held, self.holds = self.held, [], False
        # Held back alone, a message was only late.
        self.applied = len(held) > 1
        if held == [held[0]] * len(held):
            return held
        shuffled = list(held)
        while shuffled == held:
            self.rng.shuffle(shuffled)
        return shuffled


kind("reorder two")(lambda scene: Reorder(scene, 2))
kind("reorder several")(lambda scene: Reorder(scene, scene.rng.randint(3, 6)))


@kind("drop")
def drop(scene: Scene) -> Attack:
    return aimed(scene, "dropped", lambda _, m: [])


class Silence(Attack):
    """From some message on nothing passes any more."""

    def __init__(self, scene: Scene) -> None:
        self.flow = scene.flow()
        self.index = scene.index(self.flow)
        self.both = scene.rng.random() < 0.3

    def __str__(self) -> str:
        return f"nothing passes {self.flow} from message {self.index} on{', nor back' if self.both else ''}"

    def message(self, flow: Flow, index: int, message: Message) -> Items:
        ours = flow.name == self.flow and index >= self.index
        if ours and self.both:
            flow.reverse().blocked = True
        self.applied = self.applied or ours
        return [] if ours else [message]


kind("silence")(Silence)


@kind("truncate")
def truncate(scene: Scene) -> Attack:
    part = scene.rng.random()
    return aimed(scene, "truncated", lambda _, m: [m.sized(m.body[: int(part * len(m.body))])])


@kind("extend")
def extend(scene: Scene) -> Attack:
    more = scene.rng.randbytes(scene.rng.choice([1, 16, 40, 4096]))
    return aimed(scene, f"{len(more)} bytes appended", lambda _, m: [m.sized(m.body + more)])


@kind("delay", survived=True)
def delay(scene: Scene) -> Attack:
    pause = scene.rng.uniform(0.05, scene.gap_timeout_s / 3)
    return aimed(scene, f"{pause:.2f} s late", lambda _, m: [pause, m])


@kind("cut")
def cut(scene: Scene) -> Attack:
    """The connection breaks in the middle of a message."""
    part, reset = scene.rng.random(), scene.rng.random() < 0.5

    def act(flow: Flow, m: Message) -> Items:
        data = m.encode()
        flow.send(data[: int(part * len(data))])
        flow.link.close(reset)
        return []

    return aimed(scene, "reset" if reset else "closed", act)


@kind("reset between")
def reset_between(scene: Scene) -> Attack:
    """The connection breaks between two messages."""

    def act(flow: Flow, m: Message) -> Items:
        flow.send(m.encode())
        time.sleep(0.05)
        flow.link.close(scene.rng.random() < 0.5)
        return []

    return aimed(scene, "closed", act)


@kind("reflect", survived=True)
def reflect(scene: Scene) -> Attack:
    def act(flow: Flow, m: Message) -> Items:
        flow.reverse().send(m.encode())
        return [m]

    return aimed(scene, "reflected", act)


class Cross(Aimed):
    """A record is put into another flow as well, or in its place."""

    def __init__(self, scene: Scene, only: bool) -> None:
        flow = scene.flow()
        super().__init__(flow, scene.index(flow), "into another flow", self.over)
        # A copy on another way to the same rank may overtake the record itself, which is another attack.
        others = [name for name in sorted(scene.recording.flows) if name[1] != flow[1] and min(name) >= 0]
        scene.rng.shuffle(others)
        self.others, self.only = others, only

    def over(self, flow: Flow, message: Message) -> Items:
        for name in self.others:
            if name in flow.router.flows:
                self.what = f"into {name}{' only' if self.only else ''}"
                flow.router.flows[name].send(message.encode())
                break
        return [] if self.only else [message]


kind("cross", survived=True)(lambda scene: Cross(scene, False))
kind("misdirect")(lambda scene: Cross(scene, True))

# --- garbage in an existing connection


def garbage(scene: Scene, flow: FlowName) -> Message:
    """A well-formed message of core tcp with nothing sensible in it, often of a size that is waited for."""
    rng = scene.rng
    real = scene.any_message(flow)
    sizes = [0, 1, 39, 40, 79, 80, 100, 180, 8192, 8272, (200 << 10), (256 << 10) + 168, (256 << 10) + 169, 1 << 20]
    size = rng.choice([*sizes, len(real.body), len(real.body)])
    match rng.randrange(4):
        case 0:
            return wire.message(rng.randbytes(size))
        case 1:
            # The header of a record that was really sent, in a job that is over, around anything.
            return wire.message((real.body[: wire.HEADER_LEN] + rng.randbytes(size))[:size])
        case 2:
            return wire.message(rng.randbytes(size), flags=1, extra=rng.randbytes(8))
        case _:
            return wire.message(bytes(size))


@kind("garbage", survived=True)
def inject_garbage(scene: Scene) -> Attack:
    attack = aimed(scene, "", lambda _, m: [*bad, m])
    bad = [garbage(scene, attack.flow) for _ in range(scene.rng.choice([1, 1, 2, 20, 200]))]
    attack.what = f"{len(bad)} garbage messages of {len(bad[0].body)}... bytes"
    return attack


@kind("forged tag", survived=True)
def forged_tag(scene: Scene) -> Attack:
    """A copy of a record with its own connection id and sequence, and anything else, comes first."""
    rng = scene.rng

    def act(_: Flow, m: Message) -> Items:
        forged = bytearray(m.body)
        fields = wire.record_fields(m.body)
        for name in rng.sample(sorted(fields), k=min(2, len(fields))):
            if name not in ("connection", "version", "reserved"):
                start, end = fields[name]
                forged[start:end] = rng.randbytes(end - start)
        forged[0:16] = rng.randbytes(min(16, len(forged)))
        return [m.sized(bytes(forged)), m]

    return aimed(scene, "a forged copy before it", act)


@kind("future epoch", survived=True)
def future_epoch(scene: Scene) -> Attack:
    """Copies that claim a later epoch, many of them: each may cost at most one derivation in all."""
    rng = scene.rng
    epochs = [rng.choice([1, 2, 3, 1 << 31, (1 << 32) - 1]) for _ in range(50)]

    def act(_: Flow, m: Message) -> Items:
        if len(m.body) < 40:
            return [m]
        copies = [m.sized(m.body[:20] + struct.pack("<I", epoch) + m.body[24:]) for epoch in epochs]
        return [*copies, m]

    return aimed(scene, "copies of later epochs before it", act)


@kind("tagged garbage")
def tagged_garbage(scene: Scene) -> Attack:
    """Tagged messages, which the provider never sends: the core may keep them, but nobody gets them."""
    rng = scene.rng
    attack = aimed(scene, "", lambda _, m: [*bad, m])
    real = scene.any_message(attack.flow)
    tags = [struct.pack("<Q", rng.choice([0, 1, 50, 100, rng.getrandbits(64)])) for _ in range(rng.choice([1, 3]))]
    bad = [wire.message(rng.randbytes(len(real.body)), op=wire.OP_TAG, extra=tag) for tag in tags]
    attack.what = f"{len(bad)} tagged messages"
    return attack


@kind("core operation")
def core_operation(scene: Scene) -> Attack:
    """Messages of core tcp's other operations, out of turn."""
    rng = scene.rng
    op = rng.choice(
        [wire.OP_READ_REQ, wire.OP_READ_RSP, wire.OP_WRITE, wire.OP_TAG_RTS, wire.OP_CTS, wire.OP_DATA, 0, 8]
    )
    match op:
        case wire.OP_TAG_RTS:
            bad = wire.message(
                b"", op=op, extra=rng.randbytes(8) + struct.pack("<Q", rng.choice([100, 1 << 20, 1 << 40]))
            )
        case wire.OP_WRITE | wire.OP_READ_REQ:
            count = rng.choice([0, 1, 4, 5])
            target = struct.pack("<QQQ", rng.getrandbits(47), rng.choice([0, 8, 1 << 40]), rng.getrandbits(8)) * min(
                count, 4
            )
            flags = rng.choice([0, 1]) if op == wire.OP_WRITE else 0
            bad = wire.message(rng.randbytes(8), op=op, flags=flags, extra=(bytes(8) if flags else b"") + target)
            bad.head = bad.head[:5] + bytes([count]) + bad.head[6:]
        case 0:
            bad = wire.message(b"", flags=rng.choice([0, 4]), op_data=wire.OP_DATA_ACK)
        case _:
            bad = wire.message(rng.randbytes(rng.choice([0, 8, 100])), op=op, op_data=rng.randrange(4))
    return aimed(scene, f"an operation {op} with {bad.encode()[:16].hex()}", lambda _, m: [bad, m])


# --- connections


class Refuse(Attack):
    """Connection requests are refused for a while, or never answered."""

    def __init__(self, scene: Scene) -> None:
        self.times = scene.rng.choice([1, 2, 5, 1000])
        self.swallow = scene.rng.random() < 0.5
        self.flow: FlowName | None = None

    def __str__(self) -> str:
        return f"{self.times} requests {'swallowed' if self.swallow else 'refused'}, {self.flow}"

    def request(self, link: Link, data: bytes) -> bytes | None:
        if self.times <= 0 or self.flow not in (None, link.ranks):
            return data
        self.times -= 1
        self.applied, self.flow = True, link.ranks
        if not self.swallow:
            nack = bytes([wire.CONTROL_VERSION, wire.NACK]) + data[2:]
            link.initiator.sendall(nack)
            time.sleep(0.01)
            link.close()
        return None


kind("refuse")(Refuse)


class Stranger(Attack):
    """Another user of the machine connects to a rank's port."""

    uid = 65534

    def __init__(self, scene: Scene) -> None:
        self.scene, self.rng = scene, scene.rng
        flow = scene.flow()
        self.flow = flow
        self.index = scene.index(flow)
        self.started = False
        self.done = ""

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()} at message {self.index} of {self.flow}: {self.done}"

    def message(self, flow: Flow, index: int, message: Message) -> Items:
        if flow.name == self.flow and index >= self.index and not self.started:
            self.started = True
            thread = threading.Thread(target=self.run, args=(flow.router, message), daemon=True)
            thread.start()
            # The stranger comes first half of the time; otherwise he comes while messages flow.
            if self.rng.random() < 0.5:
                thread.join(1)
        return [message]

    def run(self, router: Router, message: Message) -> None:
        become(self.uid)
        target = router.addresses.get(self.flow[1])
        if target is None:
            return
        self.applied = True
        try:
            # No names are looked up here: as another user this thread could not even load the code for it.
            family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
            with socket.socket(family, socket.SOCK_STREAM) as connection:
                connection.settimeout(1)
                connection.connect(target)
                self.talk(router, connection, message)
                connection.settimeout(0.3)
                connection.recv(64)
        except OSError:
            pass

    def talk(self, router: Router, connection: socket.socket, message: Message) -> None:
        """Garbage, or a proper request in nobody's name followed by garbage or copies."""
        choice = self.rng.randrange(4)
        self.done = ("bytes", "nothing", "a request, then garbage", "a request, then a forgery")[choice]
        match choice:
            case 0:
                connection.sendall(self.rng.randbytes(self.rng.choice([1, 32, 40, 5000])))
            case 1:
                time.sleep(self.rng.uniform(0, 1))
            case _:
                # No rank listens at port 9: nobody's connection is displaced.
                connection.sendall(wire.request(9, self.rng.getrandbits(22)))
                connection.recv(64)
                bad = garbage(self.scene, self.flow) if choice == 2 else self.forgery(message)
                connection.sendall(bad.encode() * self.rng.choice([1, 10]))

    def forgery(self, message: Message) -> Message:
        """Another record under the connection id, epoch and sequence of a real one."""
        rest = max(0, len(message.body) - wire.HEADER_LEN)
        return message.sized(self.rng.randbytes(16) + message.body[16 : wire.HEADER_LEN] + self.rng.randbytes(rest))


class Overtaker(Stranger):
    """A copy of a record takes another way, perhaps a faster one: it comes before its turn, or again after it."""

    def talk(self, router: Router, connection: socket.socket, message: Message) -> None:
        connection.sendall(wire.request(9, self.rng.getrandbits(22)))
        connection.recv(64)
        self.done = "a copy"
        connection.sendall(message.encode() * self.rng.choice([1, 10]))


class Displacer(Stranger):
    """As above, but the request claims a rank's port, so that core tcp gives up that rank's real connection."""

    def talk(self, router: Router, connection: socket.socket, message: Message) -> None:
        port = router.addresses[self.flow[0]][1]
        connection.sendall(wire.request(port, self.rng.getrandbits(22)))
        answer = connection.recv(64)
        copy = self.rng.random() < 0.5
        self.done = f"{'a copy' if copy else 'garbage'} in the name of port {port}, answer {answer[1:2].hex()}"
        bad = message if copy else garbage(self.scene, self.flow)
        connection.sendall(bad.encode() * self.rng.choice([1, 10]))


class Staller(Stranger):
    """A request that stops in the middle, on a connection that stays; at one rank or at all."""

    def talk(self, router: Router, connection: socket.socket, message: Message) -> None:
        length = self.rng.choice([1, 31, 32, 32, 32, 36])
        targets = [connection.getpeername()]
        if self.rng.random() < 0.5:
            targets = list(router.addresses.values())
        self.done = f"{length} bytes of a request to {len(targets)} ranks"
        with contextlib.ExitStack() as open_ones:
            for target in targets:
                more = open_ones.enter_context(socket.socket(connection.family, socket.SOCK_STREAM))
                more.settimeout(1)
                more.connect(target)
                more.sendall(wire.request(9, 1)[:length])
            time.sleep(20 * self.scene.gap_timeout_s)


class Starver(Stranger):
    """Many connections, each of which announces a message and then says nothing more."""

    def talk(self, router: Router, connection: socket.socket, message: Message) -> None:
        count = self.rng.choice([1, 4, 20])
        self.done = f"{count} connections"
        with contextlib.ExitStack() as open_ones:
            for port in range(9, 9 + count):
                more = open_ones.enter_context(socket.socket(connection.family, socket.SOCK_STREAM))
                more.settimeout(1)
                more.connect(connection.getpeername())
                more.sendall(wire.request(port, self.rng.getrandbits(22)))
                more.recv(64)
                more.sendall(wire.message(bytes(100_000)).encode()[: self.rng.randrange(16, 1000)])
            time.sleep(3 * self.scene.gap_timeout_s)


kind("stranger", survived=True)(Stranger)
kind("starve", survived=True)(Starver)
kind("overtake")(Overtaker)
kind("displace")(Displacer)
kind("stall", survived=True)(Staller)


def become(uid: int) -> None:
    """Makes this thread, and it alone, another user; the C library's function would change the whole process."""
    number = {"x86_64": 117, "aarch64": 147, "riscv64": 147}.get(platform.machine())
    if os.geteuid() == 0 and number is not None:
        ctypes.CDLL(None).syscall(number, uid, uid, uid)


# --- the address exchange


class Cards(Attack):
    """One rank is given altered addresses."""

    def __init__(self, scene: Scene, what: str, change: Callable[[Cards, list[bytes], int], list[bytes]]) -> None:
        self.rng, self.what, self.change = scene.rng, what, change
        self.ranks = max(max(name) for name in scene.recording.flows) + 1
        self.rank = scene.rng.randrange(self.ranks)
        self.old = scene.recording.cards
        self.flow: FlowName | None = None
        self.known: list[bytes] = []

    def __str__(self) -> str:
        return f"{self.what} for rank {self.rank}"

    def cards(self, rank: int, cards: list[bytes]) -> list[bytes]:
        self.known += [card for card in cards if card not in self.known]
        if rank != self.rank:
            return cards
        changed = self.change(self, cards, rank)
        self.applied = self.applied or changed != cards
        return changed


def one_of(attack: Cards, cards: list[bytes], rank: int) -> int:
    """Which address is altered: preferably not the rank's own."""
    return attack.rng.choice([index for index in range(len(cards)) if index != rank] or [0])


def replaced(new: Callable[[Cards, list[bytes], int], bytes]) -> Callable[[Cards, list[bytes], int], list[bytes]]:
    def change(attack: Cards, cards: list[bytes], rank: int) -> list[bytes]:
        index = one_of(attack, cards, rank)
        return [*cards[:index], new(attack, cards, index), *cards[index + 1 :]]

    return change


def permuted(attack: Cards, cards: list[bytes], rank: int) -> list[bytes]:
    if len(cards) == 1:
        # Addresses come one by one: another one that was seen.
        return [attack.rng.choice([card for card in attack.known if card != cards[0]] or cards)]
    shuffled = list(cards)
    while shuffled == cards and len(set(cards)) > 1:
        attack.rng.shuffle(shuffled)
    return shuffled


def copied(attack: Cards, cards: list[bytes], index: int) -> bytes:
    """Another rank's address, or our own."""
    return attack.rng.choice([card for card in attack.known if card != cards[index]] or [cards[index]])


def mixed(attack: Cards, cards: list[bytes], index: int) -> bytes:
    """Half of one address, half of another."""
    at = attack.rng.randrange(4, len(cards[index]))
    return cards[index][:at] + copied(attack, cards, index)[at:]


def old_card(attack: Cards, cards: list[bytes], index: int) -> bytes:
    return attack.rng.choice([card for card in attack.old if len(card) == len(cards[index])] or [cards[index]])


for _name, _change in {
    "permute": permuted,
    "copy": replaced(copied),
    "mix": replaced(mixed),
    "old": replaced(old_card),
    "flip": replaced(lambda attack, cards, i: wire.flip(cards[i], attack.rng.randrange(len(cards[i]) * 8))),
    "zero": replaced(lambda attack, cards, i: bytes(len(cards[i]))),
    "random": replaced(lambda attack, cards, i: attack.rng.randbytes(len(cards[i]))),
}.items():
    kind(f"cards {_name}")(lambda scene, name=_name, change=_change: Cards(scene, f"{name} address", change))  # type: ignore[misc]
