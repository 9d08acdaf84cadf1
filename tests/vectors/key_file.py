"""Key files, wrapped data keys and entries of journals, written a second time: sealed, opened and refused."""

from __future__ import annotations

import hmac
import struct
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from vectors.reference import Expected, Given, Refused, expand, info

MAGIC = b"GMBSNKEY\x00\x01"
EXPORT = 2
PASSPHRASE = 1
WRAPPED = 12 + 32 + 16


def seal(key: bytes, nonce: str, data: bytes, plain: bytes) -> bytes:
    return bytes.fromhex(nonce) + AESGCMSIV(key).encrypt(bytes.fromhex(nonce), plain, data)


def unseal(key: bytes, data: bytes, sealed: bytes) -> bytes:
    return AESGCMSIV(key).decrypt(sealed[:12], sealed[12:], data)


def under_passphrase(passphrase: str, cost: bytes, salt: bytes) -> bytes:
    memory, passes, lanes = struct.unpack(">III", cost)
    function = Argon2id(salt=salt, length=32, iterations=passes, lanes=lanes, memory_cost=memory)
    return function.derive(passphrase.encode())


def encode_version(version: dict[str, Any]) -> bytes:
    times = (version["created"], version["changed"], version["expires"] or 0)
    seed = version["seed"]
    private = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed)) if seed else None
    verifying_key = private.public_key().public_bytes_raw() if private else bytes.fromhex(version["verifying_key"])
    signing = b"\1" + bytes.fromhex(seed) if seed else b"\0"
    wrapping_key = bytes.fromhex(version["wrapping_key"])
    return struct.pack(">IQQQ", version["number"], *times) + verifying_key + wrapping_key + signing


def encode_label(label: dict[str, Any]) -> bytes:
    name = label["name"].encode()
    versions = label["versions"]
    head = struct.pack(">B", len(name)) + name + struct.pack(">H", len(versions))
    return head + b"".join(map(encode_version, versions))


def seal_key_file(given: Given) -> Expected:
    """A store or an export, under a passphrase."""
    kind, identity = bytes([given["kind"]]), bytes.fromhex(given["id"])
    cost, salt = struct.pack(">III", *given["cost"]), bytes.fromhex(given["salt"])
    wrapping = under_passphrase(given["passphrase"], cost, salt)
    master = bytes.fromhex(given["master"])
    bound = b"gambeson key file master v1" + kind + identity + cost + salt
    wrapped = seal(wrapping, given["master_nonce"], bound, master)
    header = MAGIC + kind + identity + struct.pack(">Q", given["serial"]) + bytes([PASSPHRASE]) + cost + salt + wrapped
    labels = given["labels"]
    body = bytes.fromhex(given["anchor_key"]) + b"\0\0" + struct.pack(">H", len(labels))
    body += b"".join(map(encode_label, labels))
    return {"file": (header + seal(master, given["nonce"], header, body)).hex()}


class Reader:
    """What is left of some bytes."""

    def __init__(self, left: bytes) -> None:
        self.left = left

    def take(self, length: int) -> bytes:
        if length > len(self.left):
            raise Refused("Malformed")
        taken, self.left = self.left[:length], self.left[length:]
        return taken

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))


def decode_version(reader: Reader) -> dict[str, Any]:
    number, created, changed, expires = reader.numbers(">IQQQ")
    verifying_key, wrapping_key = reader.take(32).hex(), reader.take(32).hex()
    seed = reader.take(32).hex() if reader.take(1) == b"\1" else None
    return {
        "number": number,
        "created": created,
        "changed": changed,
        "expires": expires or None,
        "verifying_key": verifying_key,
        "wrapping_key": wrapping_key,
        "seed": seed,
    }


def read_key_file(file: bytes, passphrase: str, kind: int) -> list[dict[str, Any]]:
    """All labels of a store or an export, secrets included."""
    reader = Reader(file)
    if reader.take(10) != MAGIC or reader.take(1) != bytes([kind]):
        raise Refused("NoExport")
    identity, _serial, lock = reader.take(16), reader.take(8), reader.take(1)
    assert lock == bytes([PASSPHRASE]), "this reader knows passphrases alone"
    cost, salt, wrapped = reader.take(12), reader.take(16), reader.take(WRAPPED)
    header = file[: len(file) - len(reader.left)]
    wrapping = under_passphrase(passphrase, cost, salt)
    try:
        bound = b"gambeson key file master v1" + bytes([kind]) + identity + cost + salt
        master = unseal(wrapping, bound, wrapped)
    except InvalidTag:
        raise Refused("WrongPassphrase") from None
    try:
        body = Reader(unseal(master, header, reader.left))
    except InvalidTag:
        raise Refused("Altered") from None
    body.take(32 + 2)
    labels = []
    for _ in range(*body.numbers(">H")):
        name = body.take(*body.numbers(">B")).decode()
        labels.append({"name": name, "versions": [decode_version(body) for _ in range(*body.numbers(">H"))]})
    assert not body.left
    return labels


def open_export(given: Given) -> Expected:
    """What somebody sees of an export: labels and their versions, and what each version's keys do."""
    labels = read_key_file(bytes.fromhex(given["file"]), given["passphrase"], EXPORT)
    return {"labels": [{"name": label["name"], "versions": [shown(v) for v in label["versions"]]} for label in labels]}


def shown(version: dict[str, Any]) -> dict[str, Any]:
    public = ("number", "created", "changed", "expires", "verifying_key")
    return {name: version[name] for name in public} | {"may_write": version["seed"] is not None}


def wrap_data_key(given: Given) -> Expected:
    """A data key under a label's wrapping key, and what the label's writers sign."""
    wrapping_key, context = bytes.fromhex(given["wrapping_key"]), bytes.fromhex(given["context"])
    wrapped = seal(wrapping_key, given["nonce"], context, bytes.fromhex(given["key"]))
    signature = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(given["seed"])).sign(context)
    return {"wrapped": wrapped.hex(), "signature": signature.hex()}


def wrapping_key(given: Given) -> tuple[bytes, str | None]:
    """Of a version of a label out of an export: its wrapping key, and its seed if that came along."""
    labels = read_key_file(bytes.fromhex(given["file"]), given["passphrase"], EXPORT)
    label = next(label for label in labels if label["name"] == given["label"])
    version = next(version for version in label["versions"] if version["number"] == given["version"])
    return bytes.fromhex(version["wrapping_key"]), version["seed"]


def use_label(given: Given) -> Expected:
    """What a label out of an export unwraps, and signs."""
    wrapping, seed = wrapping_key(given)
    context = bytes.fromhex(given["context"])
    try:
        key = unseal(wrapping, context, bytes.fromhex(given["wrapped"]))
    except InvalidTag:
        raise Refused("WrongWrapping") from None
    if not seed:
        return {"key": key.hex(), "signature": None}
    signature = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed)).sign(context)
    return {"key": key.hex(), "signature": signature.hex()}


def journal_keys(data: bytes, identity: bytes) -> tuple[bytes, bytes]:
    """What names a journal's entries, and what seals them."""
    return (
        expand(data, info(b"gambeson journal name", identity), 32),
        expand(data, info(b"gambeson journal entry", identity), 32),
    )


def journal_context(given: Given) -> bytes:
    version = struct.pack(">I", given["version"])
    return b"gambeson journal wrap v1" + bytes.fromhex(given["id"]) + version + given["label"].encode()


def seal_journal_entry(given: Given) -> Expected:
    """A journal's data key as its label wraps it, and an entry."""
    data, identity = bytes.fromhex(given["key"]), bytes.fromhex(given["id"])
    naming, sealing = journal_keys(data, identity)
    name = hmac.digest(naming, bytes.fromhex(given["of"]), "sha256")
    wrapped = seal(bytes.fromhex(given["wrapping_key"]), given["wrap_nonce"], journal_context(given), data)
    sealed = seal(sealing, given["nonce"], identity + name, bytes.fromhex(given["plain"]))
    return {"wrapped": wrapped.hex(), "sealed": sealed.hex()}


def open_journal_entry(given: Given) -> Expected:
    """The entry of something in a journal, with a label out of an export."""
    wrapping, seed = wrapping_key(given)
    try:
        data = unseal(wrapping, journal_context(given), bytes.fromhex(given["wrapped"]))
    except InvalidTag:
        raise Refused("WrongWrapping") from None
    if not seed:
        raise Refused("MayNotWrite")
    identity = bytes.fromhex(given["id"])
    naming, sealing = journal_keys(data, identity)
    name = hmac.digest(naming, bytes.fromhex(given["of"]), "sha256")
    try:
        plain = unseal(sealing, identity + name, bytes.fromhex(given["sealed"]))
    except InvalidTag:
        return {"name": name.hex(), "plain": None}
    return {"name": name.hex(), "plain": plain.hex()}
