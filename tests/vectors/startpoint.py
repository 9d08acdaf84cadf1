"""Startpoints and the keys of links, written a second time: from the layouts and the threat model's rule 12."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from vectors.reference import SUITES, Direction, Expected, Given, Refused, derive, expand, info, partition_key

PROTECTIONS = {"privacy": 1, "integrity": 2, "none": 3}
ADDRESS_KINDS = {"tcp": 1, "shm": 2}
KINDS = {"methods": 1, "uses": 2, "expires": 3, "memory": 4, "protection": 5, "copy": 6}
RIGHTS = {"r": 1, "w": 2, "rw": 3}
WINDOW = struct.Struct(">QQQB")
CONTEXT = b" " * 64 + b"Gambeson, copy of a startpoint\0"
VERSION = b"\1"


def signing_key(seed: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed))


def raw_public(seed: str) -> bytes:
    return signing_key(seed).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def key_hash(public: bytes) -> bytes:
    key = Ed25519PublicKey.from_public_bytes(public)
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


def domain(seed: str) -> bytes:
    return key_hash(raw_public(seed))


def u64(number: int) -> bytes:
    return number.to_bytes(8, "big")


def text(value: str) -> bytes:
    return bytes([len(value)]) + value.encode()


def caveat_bytes(kind: str, content: bytes) -> bytes:
    return bytes([KINDS[kind]]) + len(content).to_bytes(2, "big") + content


@dataclass
class Chain:
    """A startpoint's name and secret, the caveats that led there, and whose it is."""

    name: bytes
    secret: bytes
    caveats: list[bytes]
    holder_seed: str | None = None
    copy: bytes | None = None

    @staticmethod
    def root(given: Given) -> Chain:
        label = b"gambeson startpoint name"
        origin = domain(given["owner_seed"]), u64(given["endpoint"]), bytes.fromhex(given["root"])
        transforms = [",".join(given["transforms"]).encode()] if given["transforms"] else []
        name = hashlib.sha256(info(label, *origin, given["class"].encode(), *transforms)).digest()
        secret = derive(bytes.fromhex(given["endpoint_key"]), info(b"gambeson startpoint root", name))
        return Chain(name, secret, [])

    def append(self, caveat: bytes) -> None:
        self.caveats.append(caveat)
        self.name = hashlib.sha256(self.name + caveat).digest()
        self.secret = expand(self.secret, info(b"gambeson startpoint caveat", self.name), 32)

    def step(self, step: dict[str, Any]) -> None:
        ((kind, value),) = step.items()
        if kind == "copy":
            content = bytes.fromhex(value["id"]) + domain(value["holder_seed"])
            # A case may name somebody else who signs, or nobody at all.
            signer = value.get("signer_seed", self.holder_seed)
            if signer is not None:
                content += raw_public(signer) + signing_key(signer).sign(CONTEXT + self.name + content)
            self.append(caveat_bytes(kind, content))
            self.holder_seed, self.copy = value["holder_seed"], self.name[:16]
            return
        match kind:
            case "methods":
                content = b"".join(method.to_bytes(4, "big") for method in value)
            case "uses" | "expires":
                content = u64(value)
            case "memory":
                content = b"".join(WINDOW.pack(*window[:3], RIGHTS[window[3]]) for window in value)
            case "protection":
                content = bytes([PROTECTIONS[value]])
        self.append(caveat_bytes(kind, content))


def walk(given: Given) -> Chain:
    chain = Chain.root(given)
    for step in given["mint"]:
        chain.step(step)
    if not any("memory" in step for step in given["mint"]):
        chain.step({"memory": []})
    for step in given["steps"]:
        chain.step(step)
    return chain


def caveat_list(caveats: list[bytes]) -> bytes:
    return bytes([len(caveats)]) + b"".join(caveats)


def startpoint(given: Given) -> Expected:
    chain = walk(given)
    addresses = [bytes([ADDRESS_KINDS[kind]]) + text(where) for kind, where in given["addresses"]]
    parts = [
        VERSION,
        domain(given["owner_seed"]),
        u64(given["endpoint"]),
        bytes.fromhex(given["root"]),
        text(given["class"]),
        text(",".join(given["transforms"])),
        bytes([len(addresses)]),
        *addresses,
        caveat_list(chain.caveats),
        chain.secret,
    ]
    return {"startpoint": b"".join(parts).hex(), "copy": chain.copy.hex() if chain.copy else None}


# --- links


@dataclass(frozen=True)
class Link:
    """What both ends derive."""

    from_startpoint: Direction
    from_endpoint: Direction
    proof: bytes
    answer: bytes


def link_keys(given: Given, name: bytes, secret: bytes, number: int, nonce: bytes, protection: int) -> Link:
    opener, owner = domain(given["opener_seed"]), domain(given["owner_seed"])
    job_id, partition = bytes.fromhex(given["job_id"]), given["partition"]
    partition_secret, partition_epoch = bytes(32), 0
    if partition:
        partition_epoch = partition["epoch"]
        partition_secret = partition_key(bytes.fromhex(partition["secret"]), partition_epoch, partition["name"], job_id)
    link_secret = expand(secret, info(b"gambeson startpoint link"), 32)
    material = bytes.fromhex(given["exporter"]) + link_secret + partition_secret

    def context(label: bytes, direction: int) -> bytes:
        sender, receiver = (opener, owner) if direction == 1 else (owner, opener)
        return info(
            label,
            bytes([SUITES[given["suite"]][0]]),
            job_id,
            sender,
            receiver,
            partition_epoch.to_bytes(4, "big"),
            bytes.fromhex(given["policy_hash"]),
            bytes([partition is not None]),
            bytes([direction]),
            b"\1",
            u64(number),
            nonce,
            name,
            bytes([protection]),
        )

    def direction(number: int) -> Direction:
        connection = derive(material, context(b"gambeson link connection", number), 8)
        root = derive(material, context(b"gambeson link direction", number))
        return Direction(root, int.from_bytes(connection, "little"))

    proof, answer = (derive(material, context(b"gambeson link proof", number), 16) for number in (1, 2))
    return Link(direction(1), direction(2), proof, answer)


def link(given: Given) -> Expected:
    """The opener opened the session as well, so its first link is number 1."""
    chain = walk(given)
    nonce, protection = bytes.fromhex(given["nonce"]), PROTECTIONS[given["protection"]]
    keys = link_keys(given, chain.name, chain.secret, 1, nonce, protection)
    parts = [
        VERSION,
        u64(1),
        nonce,
        bytes([protection]),
        u64(given["endpoint"]),
        bytes.fromhex(given["root"]),
        caveat_list(chain.caveats),
        keys.proof,
    ]
    expected = {"activation": b"".join(parts).hex(), "answer": keys.answer.hex()}
    for end, direction in (("from_startpoint", keys.from_startpoint), ("from_endpoint", keys.from_endpoint)):
        key, iv = direction.epoch(0, given["suite"], "privacy")
        expected[f"{end}_root"] = direction.root.hex()
        expected[f"{end}_connection_id"] = f"{direction.connection_id:016x}"
        expected[f"{end}_first_empty_tag"] = AESGCM(key).encrypt(iv, b"", b"").hex()
    return expected


# --- reading and deciding


class Reader:
    """Bytes, taken from the front."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, length: int) -> bytes:
        if length > len(self.data):
            raise Refused("CutShort")
        taken, self.data = self.data[:length], self.data[length:]
        return taken

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "big")

    def text(self, most: int) -> str:
        taken = self.take(self.number(1))
        if not 1 <= len(taken) <= most or any(not 0x21 <= byte <= 0x7E for byte in taken):
            raise Refused("Malformed")
        return taken.decode()

    def names(self, most: int) -> list[str]:
        """Names with commas between them, or nothing."""
        if self.data[:1] == b"\0":
            self.take(1)
            return []
        names = self.text(most).split(",")
        if not all(names):
            raise Refused("Malformed")
        return names

    def version(self) -> None:
        if self.take(1) != VERSION:
            raise Refused("Version")

    def end(self) -> None:
        if self.data:
            raise Refused("TooLong")

    def caveats(self) -> list[bytes]:
        count = self.number(1)
        if count > 16:
            raise Refused("TooManyCaveats")
        caveats: list[bytes] = []
        for _ in range(count):
            head = self.take(3)
            caveats.append(head + self.take(int.from_bytes(head[1:], "big")))
            if not sound(caveats[-1][0], caveats[-1][3:]):
                raise Refused("Malformed")
            if sum(map(len, caveats)) > 1024:
                raise Refused("TooManyCaveats")
        return caveats


def sound(kind: int, content: bytes) -> bool:
    match kind:
        case 1:
            methods = [content[at : at + 4] for at in range(0, len(content), 4)]
            return len(content) % 4 == 0 and methods == sorted(set(methods))
        case 2 | 3:
            return len(content) == 8
        case 4:
            windows = WINDOW.iter_unpack(content) if len(content) % WINDOW.size == 0 else [(0, 0, 0, 0)]
            return all(
                length and offset + length < 2**64 and rights in (1, 2, 3) for _, offset, length, rights in windows
            )
        case 5:
            return content in (b"\1", b"\2", b"\3")
        case 6:
            return len(content) in (48, 144)
    return False


def decode_startpoint(given: Given) -> Expected:
    reader = Reader(bytes.fromhex(given["startpoint"]))
    reader.version()
    owner, endpoint, _root = reader.take(32), reader.number(8), reader.take(16)
    name, transforms = reader.text(32), reader.names(64)
    count = reader.number(1)
    if count > 8:
        raise Refused("Malformed")
    addresses = []
    for _ in range(count):
        kind = reader.number(1)
        if kind not in ADDRESS_KINDS.values():
            raise Refused("Malformed")
        addresses.append(reader.text(255))
    caveats = reader.caveats()
    if not any(reader.take(32)):
        raise Refused("Malformed")
    reader.end()
    return {
        "owner": owner.hex(),
        "endpoint": endpoint,
        "class": name,
        "transforms": transforms,
        "addresses": addresses,
        "caveats": len(caveats),
    }


def admit(given: Given) -> Expected:
    """What the endpoint says to an activation."""
    try:
        reader = Reader(bytes.fromhex(given["activation"]))
        reader.version()
        number, nonce, protection = reader.number(8), reader.take(16), reader.number(1)
        if protection not in PROTECTIONS.values():
            raise Refused("Malformed")
        endpoint, root, caveats, proof = reader.number(8), reader.take(16), reader.caveats(), reader.take(16)
        reader.end()
    except Refused:
        raise Refused("Malformed") from None
    if number % 2 == 0:
        raise Refused("Replayed")
    if endpoint != given["endpoint"] or root.hex() != given["root"]:
        raise Refused("Unknown")
    chain = Chain.root(given)
    holder: bytes | None = None
    expires, floor, vouched = 2**64 - 1, PROTECTIONS[given["floor"]], True
    for caveat in caveats:
        kind, content = caveat[0], caveat[3:]
        match kind:
            case 3:
                expires = min(expires, int.from_bytes(content, "big"))
            case 5:
                floor = min(floor, content[0])
            case 6:
                vouched = vouched and vouches(holder, chain.name, content)
                holder = content[16:48]
        chain.append(caveat)
    keys = link_keys(given, chain.name, chain.secret, number, nonce, protection)
    if keys.proof != proof:
        raise Refused("Unproven")
    if holder not in (None, domain(given["opener_seed"])):
        raise Refused("NotHolder")
    if given["now"] >= expires:
        raise Refused("Expired")
    if protection > floor:
        raise Refused("Unprotected")
    if not vouched:
        raise Refused("Unvouched")
    return {"answer": keys.answer.hex()}


def vouches(holder: bytes | None, name: bytes, content: bytes) -> bool:
    copy, public, signature = content[:48], content[48:80], content[80:]
    if holder is None or not public:
        return holder is None and not public
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, CONTEXT + name + copy)
    except InvalidSignature:
        return False
    return key_hash(public) == holder
