"""Gambeson's keys and cards, written a second time: from the threat model, with the package `cryptography`.

Nothing here is shared with the Rust code. An operation takes what a vector gives and returns what it must expect.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

Given = dict[str, Any]
Expected = dict[str, Any]

VERSION = 1
NO_RANK = 0xFFFFFF
PRIME = 2**255 - 19
SUITES = {"aes-256-gcm": (1, 32), "aes-128-gcm": (2, 16)}
EPOCH_LABELS = {"privacy": b"gambeson epoch privacy", "integrity": b"gambeson epoch integrity"}


class Refused(Exception):
    """The operation must be refused, for the reason that the Rust code names so."""


# --- keys


def info(label: bytes, *fields: bytes) -> bytes:
    return b"".join(len(field).to_bytes(2, "big") + field for field in (label, bytes([VERSION]), *fields))


def derive(secret: bytes, context: bytes, length: int = 32) -> bytes:
    """Extract, without salt, and Expand."""
    return HKDF(hashes.SHA256(), length, None, context).derive(secret)


def expand(secret: bytes, context: bytes, length: int) -> bytes:
    return HKDFExpand(hashes.SHA256(), length, context).derive(secret)


def mac_key(given: Given, label: bytes) -> bytes:
    return derive(bytes.fromhex(given["job_secret"]), info(label, bytes.fromhex(given["job_id"])))


def partition_key(secret: bytes, epoch: int, name: str, job_id: bytes) -> bytes:
    hashed = hashlib.sha256(name.encode()).digest()
    return derive(secret, info(b"gambeson partition", hashed, epoch.to_bytes(4, "big"), job_id))


@dataclass(frozen=True)
class Direction:
    """One direction of a pair."""

    root: bytes
    connection_id: int

    def epoch(self, epoch: int, suite: str, protection: str) -> tuple[bytes, bytes]:
        """Key and IV."""
        number, key_len = SUITES[suite]
        context = info(EPOCH_LABELS[protection], bytes([number]), epoch.to_bytes(4, "big"))
        material = expand(self.root, context, 44)
        return material[:key_len], material[32:]


def public_key(seed: str) -> bytes:
    private = X25519PrivateKey.from_private_bytes(bytes.fromhex(seed))
    return private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def peer_public_key(given: Given) -> bytes:
    return bytes.fromhex(given["peer_public"]) if "peer_public" in given else public_key(given["peer_seed"])


def directions(given: Given) -> tuple[Direction, Direction]:
    """Of the pair: from own to peer, from peer to own."""
    own, peer = public_key(given["own_seed"]), peer_public_key(given)
    if peer == own or int.from_bytes(peer, "little") >= PRIME:
        raise Refused("WeakKey")
    try:
        private = X25519PrivateKey.from_private_bytes(bytes.fromhex(given["own_seed"]))
        shared = private.exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError:
        raise Refused("WeakKey") from None
    job_id, partition = bytes.fromhex(given["job_id"]), given["partition"]
    partition_secret, partition_epoch = bytes(32), 0
    if partition:
        partition_epoch = partition["epoch"]
        partition_secret = partition_key(bytes.fromhex(partition["secret"]), partition_epoch, partition["name"], job_id)
    material = shared + bytes.fromhex(given["job_secret"]) + partition_secret

    def direction(sender: bytes, receiver: bytes) -> Direction:
        fields = (
            bytes([SUITES[given["suite"]][0]]),
            job_id,
            sender,
            receiver,
            partition_epoch.to_bytes(4, "big"),
            bytes.fromhex(given["policy_hash"]),
            bytes([partition is not None]),
        )
        connection_id = derive(material, info(b"gambeson connection", *fields), 8)
        root = derive(material, info(b"gambeson direction", *fields))
        return Direction(root, int.from_bytes(connection_id, "little"))

    return direction(own, peer), direction(peer, own)


def pair(given: Given) -> Expected:
    expected = {}
    for name, direction in zip(("send", "receive"), directions(given), strict=True):
        key, iv = direction.epoch(0, given["suite"], "privacy")
        expected[f"{name}_root"] = direction.root.hex()
        expected[f"{name}_connection_id"] = f"{direction.connection_id:016x}"
        expected[f"{name}_first_empty_tag"] = AESGCM(key).encrypt(iv, b"", b"").hex()
    expected["own_public"] = public_key(given["own_seed"]).hex()
    expected["peer_public"] = peer_public_key(given).hex()
    return expected


def partition(given: Given) -> Expected:
    secret, job_id = bytes.fromhex(given["secret"]), bytes.fromhex(given["job_id"])
    return {"key": partition_key(secret, given["epoch"], given["name"], job_id).hex()}


def registration(given: Given) -> Expected:
    key = mac_key(given, b"gambeson registration")
    claim = bytes.fromhex(given["job_id"]) + given["pid"].to_bytes(8, "little") + given["rank"].to_bytes(8, "little")
    return {"key": key.hex(), "proof": hmac.digest(key, claim, "sha256").hex()}


def session(given: Given) -> Expected:
    """A session of links: what TLS exported, and the job's secret where both ends are of the job."""
    exported, job = bytes.fromhex(given["exported"]), "job_secret" in given
    secret = bytes.fromhex(given["job_secret"]) if job else bytes(32)
    session = derive(exported + secret + bytes(32), info(b"gambeson session", bytes([job])))
    expected = {"secret": session.hex(), "name": expand(session, info(b"gambeson session name"), 16).hex()}
    key = expand(session, info(b"gambeson session resumption"), 32)
    claim = bytes.fromhex(given["client_nonce"] + given["server_nonce"]) + given["received"].to_bytes(8, "big")
    for side, number in {"client": b"\x01", "server": b"\x02"}.items():
        expected[f"{side}_resumption"] = hmac.digest(key, number + claim, "sha256").hex()
        if job:
            proof = hmac.digest(mac_key(given, b"gambeson session proof"), exported + number, "sha256")
            expected[f"{side}_proof"] = proof.hex()
    return expected


# --- cards


def card_mac(given: Given, content: bytes) -> bytes:
    return hmac.digest(mac_key(given, b"gambeson admission"), content, "sha256")[:8]


def encode_card(given: Given) -> Expected:
    ip = ipaddress.ip_address(given["ip"])
    content = b"".join(
        [
            bytes([VERSION << 4 | ip.version]),
            given["port"].to_bytes(2, "big"),
            ip.packed.ljust(16, b"\0"),
            bytes.fromhex(given["public_key"]),
            (NO_RANK if given["rank"] is None else given["rank"]).to_bytes(3, "big"),
            given["host"].to_bytes(2, "big"),
        ]
    )
    key = mac_key(given, b"gambeson admission")
    return {"admission_key": key.hex(), "card": (content + card_mac(given, content)).hex()}


def decode_card(given: Given) -> Expected:
    card = bytes.fromhex(given["card"])
    if len(card) != 64:
        raise Refused("WrongLength")
    content = card[:56]
    if card_mac(given, content) != card[56:]:
        raise Refused("NotOfThisJob")
    version, family = content[0] >> 4, content[0] & 15
    address = content[3:7] if family == 4 else content[3:19]
    if version != VERSION or family not in (4, 6) or (family == 4 and any(content[7:19])):
        raise Refused("Malformed")
    rank = int.from_bytes(content[51:54], "big")
    return {
        "ip": str(ipaddress.ip_address(address)),
        "port": int.from_bytes(content[1:3], "big"),
        "public_key": content[19:51].hex(),
        "rank": None if rank == NO_RANK else rank,
        "host": int.from_bytes(content[54:56], "big"),
    }


# --- records' bytes


def nonce(iv: bytes, sequence: int) -> bytes:
    return (int.from_bytes(iv, "big") ^ sequence).to_bytes(12, "big")


def seal_with(key: bytes, iv: bytes, given: Given) -> Expected:
    plain, data = bytes.fromhex(given["plain"]), bytes.fromhex(given["associated_data"])
    sealed = AESGCM(key).encrypt(nonce(iv, given["sequence"]), plain, data)
    return {"sealed": sealed[:-16].hex(), "tag": sealed[-16:].hex()}


def seal(given: Given) -> Expected:
    iv = bytes.fromhex(given["iv"])
    sealed = seal_with(bytes.fromhex(given["key"]), iv, given)
    return {"nonce": nonce(iv, given["sequence"]).hex()} | sealed


def open_sealed(given: Given) -> Expected:
    key, iv = bytes.fromhex(given["key"]), bytes.fromhex(given["iv"])
    sealed, data = bytes.fromhex(given["sealed"] + given["tag"]), bytes.fromhex(given["associated_data"])
    try:
        return {"plain": AESGCM(key).decrypt(nonce(iv, given["sequence"]), sealed, data).hex()}
    except InvalidTag:
        raise Refused("Unauthentic") from None


def epoch(given: Given) -> Expected:
    """What the own end of a pair seals in an epoch. Under integrity, the associated data is the region in clear."""
    send, _ = directions(given)
    key, iv = send.epoch(given["epoch"], given["suite"], given["protection"])
    return {"key": key.hex(), "iv": iv.hex()} | seal_with(key, iv, given)


OPERATIONS: dict[str, Callable[[Given], Expected]] = {
    "pair": pair,
    "partition": partition,
    "registration": registration,
    "session": session,
    "encode card": encode_card,
    "decode card": decode_card,
    "seal": seal,
    "open": open_sealed,
    "epoch": epoch,
}
