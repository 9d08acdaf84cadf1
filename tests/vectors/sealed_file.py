"""Sealed files, written a second time: shares, entries, digests, tables and headers, from docs/file-format.md.

Whose a byte is, is asked byte by byte, and a file is a map from offsets to bytes: slow, and hard to get wrong.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from itertools import groupby

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESGCMSIV
from cryptography.hazmat.primitives.cmac import CMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from vectors.reference import Expected, Given, Refused

SUITES = {"xaes-256-gcm": 1, "aes-256-gcm-siv": 2, "aes-256-xts": 3}
MAGIC = b"GMBSNFIL"
STATUS = {"closed": 1, "open": 2}
ENTRY_LEN = 64


def number(value: int, length: int) -> bytes:
    return value.to_bytes(length, "big")


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


# --- shares


@dataclass(frozen=True)
class Key:
    """A region's data key of an epoch."""

    suite: str
    secret: bytes
    file: bytes
    region: int
    epoch: int

    def commitment(self) -> bytes:
        said = b"gambeson file key v1" + self.file + number(self.region, 2) + number(self.epoch, 2)
        return hmac.digest(self.secret, said, "sha256")

    def associated(self, block: int, generation: int, length: int) -> bytes:
        return b"".join(
            (
                b"gambeson file share v1",
                self.file,
                number(self.region, 2),
                number(block, 8),
                number(generation, 8),
                number(length, 4),
                number(self.epoch, 2),
                number(SUITES[self.suite], 1),
            )
        )

    def seal(self, nonce: bytes, block: int, generation: int, plain: bytes) -> tuple[bytes, bytes]:
        """The share's entry and its sealed bytes."""
        data = self.associated(block, generation, len(plain))
        match self.suite:
            case "xaes-256-gcm":
                sealed = AESGCM(xaes_key(self.secret, nonce[:12])).encrypt(nonce[12:], plain, data)
            case "aes-256-gcm-siv":
                sealed = AESGCMSIV(self.secret).encrypt(nonce[:12], plain, data)
            case _:
                sealed = xts(self.secret, nonce, block, plain) + bytes(16)
        sealed, tag = sealed[:-16], sealed[-16:]
        numbers = number(generation, 8) + number(len(plain), 4) + number(self.epoch, 2) + number(SUITES[self.suite], 1)
        return nonce + tag + numbers + bytes(9), sealed


def xaes_key(key: bytes, nonce: bytes) -> bytes:
    """C2SP, XAES-256-GCM: CMAC of one block each."""

    def derive(counter: int) -> bytes:
        mac = CMAC(algorithms.AES256(key))
        mac.update(number(counter, 2) + b"X\0" + nonce)
        return mac.finalize()

    return derive(1) + derive(2)


def xts(key: bytes, nonce: bytes, block: int, plain: bytes) -> bytes:
    keys = HKDFExpand(hashes.SHA256(), 64, b"gambeson file xts v1").derive(key)
    tweak = nonce[:8] + number(int.from_bytes(nonce[8:16], "big") ^ block, 8)

    def encrypt(data: bytes) -> bytes:
        encryptor = Cipher(algorithms.AES(keys), modes.XTS(tweak)).encryptor()
        return encryptor.update(data) + encryptor.finalize()

    if len(plain) >= 16:
        return encrypt(plain)
    return bytes(a ^ b for a, b in zip(plain, encrypt(bytes(16)), strict=False))


def share(given: Given) -> Expected:
    key = Key(
        given["suite"], bytes.fromhex(given["key"]), bytes.fromhex(given["file"]), given["region"], given["epoch"]
    )
    plain = bytes.fromhex(given["plain"])
    entry, sealed = key.seal(bytes.fromhex(given["nonce"]), given["block"], given["generation"], plain)
    return {"entry": entry.hex(), "sealed": sealed.hex(), "commitment": key.commitment().hex()}


# --- files


def content(at: int) -> int:
    """What a program wrote at a place: bytes that tell the place."""
    return (at * 7 + at // 251) % 256


class Body:
    """A file: whatever nobody wrote is zero."""

    def __init__(self) -> None:
        self.bytes = bytearray()

    def put(self, at: int, data: bytes) -> None:
        self.bytes.extend(bytes(max(0, at + len(data) - len(self.bytes))))
        self.bytes[at : at + len(data)] = data

    def pieces(self) -> list[list[int | str]]:
        """What is not zero, in steps of 16 bytes."""
        steps = ((at, bytes(self.bytes[at : at + 16])) for at in range(0, len(self.bytes), 16))
        pieces: list[list[int | str]] = []
        for is_zero, run in groupby(steps, lambda step: not any(step[1])):
            run_of = list(run)
            if not is_zero:
                pieces.append([run_of[0][0], b"".join(data for _, data in run_of).hex()])
        return pieces


class Layout:
    """Where everything stands."""

    def __init__(self, geometry: Given) -> None:
        self.block = geometry["block_len"]
        self.header = geometry["header_len"]
        self.entries = geometry["shares"] * ENTRY_LEN
        self.group_blocks = geometry["group_blocks"]
        self.groups = geometry["groups"]
        self.detached = geometry["detached"]
        self.half = self.entries + (0 if self.detached else self.block)
        self.slot_len = self.half * (2 if geometry["two_slots"] else 1)
        self.group_len = self.group_blocks * (self.entries + self.slot_len)
        self.chapter_len = self.groups * (32 + self.group_len)

    def digest_table(self, chapter: int) -> int:
        return 2 * int(self.header) + chapter * int(self.chapter_len)

    def entry_table(self, group: int) -> int:
        chapter, within = divmod(group, self.groups)
        return self.digest_table(chapter) + self.groups * 32 + within * int(self.group_len)

    def slot(self, block: int, half: int) -> int:
        group, within = divmod(block, self.group_blocks)
        table = self.group_blocks * self.entries
        return self.entry_table(group) + int(table + within * self.slot_len + half * self.half)


def owner(regions: list[Given], at: int) -> int:
    """The region of a byte."""
    for region, fields in enumerate(regions):
        for part in fields["parts"]:
            behind = at - part["displacement"]
            within = behind % part["extent"]
            if behind >= 0 and any(offset <= within < offset + length for offset, length in part["pieces"]):
                return region
    return 0


def encode_table(given: Given) -> bytes:
    geometry = given["geometry"]
    flags = geometry["two_slots"] | geometry["detached"] << 1
    out = bytes.fromhex(given["file"])
    out += bytes([geometry["block_len"].bit_length() - 1, geometry["header_len"].bit_length() - 1, geometry["shares"]])
    out += number(geometry["group_blocks"], 4) + number(geometry["groups"], 4) + bytes([flags])
    out += number(len(given["labels"]), 2)
    for label in given["labels"]:
        name = label["name"].encode()
        verifying = signing_key(label).public_key().public_bytes_raw()
        out += bytes([len(name)]) + name + number(label["version"], 4) + verifying
    out += number(len(given["regions"]), 2)
    for region, fields in enumerate(given["regions"]):
        out += bytes([SUITES[fields["suite"]]]) + number(len(fields["keys"]), 2)
        for key in fields["keys"]:
            wrapped = bytes.fromhex(key["wrapped"])
            out += number(key["epoch"], 2) + number(key["label"], 2) + number(len(wrapped), 2) + wrapped
            out += data_key(given, region, key["epoch"]).commitment()
        out += number(len(fields["parts"]), 4)
        for part in fields["parts"]:
            out += number(part["displacement"], 8) + number(part["extent"], 8) + number(len(part["pieces"]), 4)
            out += b"".join(number(offset, 8) + number(length, 8) for offset, length in part["pieces"])
    return out


def data_key(given: Given, region: int, epoch: int) -> Key:
    fields = given["regions"][region]
    secret = next(key["key"] for key in fields["keys"] if key["epoch"] == epoch)
    return Key(fields["suite"], bytes.fromhex(secret), bytes.fromhex(given["file"]), region, epoch)


def signing_key(label: Given) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(label["seed"]))


def encode_header(given: Given, root: bytes) -> bytes:
    table, labels, said = encode_table(given), given["labels"], given["state"]
    state = number(said["serial"], 8) + number(said["generation"], 8) + bytes([STATUS[said["status"]]])
    state += number(said["size"], 8) + root + number(said["closed"], 8) + number(said["base"], 8)
    body = number(len(table), 4) + table + number(len(labels), 2)
    for place, label in enumerate(labels):
        body += number(place, 2) + signing_key(label).sign(b"gambeson file table v1" + sha256(table))
    signer = given["signer"]
    body += state + number(signer, 2)
    body += signing_key(labels[signer]).sign(b"gambeson file state v1" + sha256(table) + state)
    copy = MAGIC + number(1, 2) + number(given["geometry"]["header_len"], 4) + number(len(body), 4) + body
    return copy + sha256(copy)


def write(given: Given, layout: Layout, body: Body, data: Body) -> dict[int, bytes]:
    """Puts the shares into their slots; returns the anchored entries by their place."""
    regions = given["regions"]
    sealed = [region for region, fields in enumerate(regions) if fields["keys"]]
    anchored = {}
    for one in given["writes"]:
        block, region = one["block"], one["region"]
        start = block * int(layout.block)
        owners = [owner(regions, at) for at in range(start, start + int(layout.block))]
        area = sum((other not in sealed, other) < (region not in sealed, region) for other in owners)
        plain = bytes(content(start + at) for at, other in enumerate(owners) if other == region)[: one["length"]]
        half = one.get("half", 0)
        slot = layout.slot(block, half)
        if regions[region]["keys"]:
            key = data_key(given, region, one["epoch"])
            entry, plain = key.seal(bytes.fromhex(one["nonce"]), block, one["generation"], plain)
            place = sum(other in owners for other in sealed if other < region) * ENTRY_LEN
            body.put(slot + place, entry)
            if one.get("anchored", True):
                anchored[block * int(layout.entries) + place] = entry
        if layout.detached:
            data.put(start + area, plain)
        else:
            body.put(slot + int(layout.entries) + area, plain)
    return anchored


def anchor(given: Given, layout: Layout, body: Body, anchored: dict[int, bytes]) -> bytes:
    """Writes entry tables and digest tables; returns the root."""
    blocks = -(-given["state"]["size"] // layout.block)
    chapter_blocks = layout.groups * layout.group_blocks
    table_len = layout.group_blocks * layout.entries
    chapters = []
    for chapter in range(-(-blocks // chapter_blocks)):
        digests = b""
        for group in range(chapter * layout.groups, (chapter + 1) * layout.groups):
            first = group * table_len
            table = b"".join(anchored.get(at, bytes(64)) for at in range(first, first + table_len, 64))
            if any(table):
                body.put(layout.entry_table(group), table)
            digests += sha256(table) if any(table) else bytes(32)
        body.put(layout.digest_table(chapter), digests)
        chapters.append(sha256(digests))
    return sha256(b"gambeson file root v1" + number(len(chapters), 8) + b"".join(chapters))


def sealed_file(given: Given) -> Expected:
    layout, body, data = Layout(given["geometry"]), Body(), Body()
    anchored = write(given, layout, body, data)
    root = anchor(given, layout, body, anchored)
    copy = encode_header(given, root)
    body.put(0 if given["copy"] == "A" else layout.header, copy)
    expected: Expected = {"root": root.hex(), "file": body.pieces(), "sha256": sha256(bytes(body.bytes)).hex()}
    return expected | ({"data": data.pieces()} if layout.detached else {})


def offsets(given: Given) -> Expected:
    layout = Layout(given["geometry"])
    blocks = {}
    for block in given["blocks"]:
        group = block // layout.group_blocks
        blocks[str(block)] = {
            "digest_table": layout.digest_table(group // layout.groups),
            "entry_table": layout.entry_table(group),
            "slot": layout.slot(block, 0),
        }
    return {"blocks": blocks}


# --- headers


def read_header(given: Given) -> Expected:
    """Looks at what is not right in the cases: checksum, version, and signatures."""
    copy = bytes.fromhex(given["copy"])
    if copy[:8] != MAGIC:
        raise Refused("Foreign")
    if copy[8:10] != b"\0\1":
        raise Refused("Version")
    end = 18 + int.from_bytes(copy[14:18], "big")
    if sha256(copy[:end]) != copy[end : end + 32]:
        raise Refused("Damaged")
    length = int.from_bytes(copy[18:22], "big")
    table, rest = copy[22 : 22 + length], copy[22 + length : end]
    labels = labels_of(table)
    known = {(label["name"], label["version"]): label["verifying_key"] for label in given["pinned"]}
    if not any((name, version) in known for name, version, _ in labels):
        raise Refused("Unknown")
    for place, (name, version, key) in enumerate(labels):
        pinned = known.get((name, version))
        if pinned is None:
            continue
        if bytes.fromhex(pinned) != key:
            raise Refused("OtherKey")
        signature = rest[2 + 66 * place + 2 : 2 + 66 * (place + 1)]
        verify(key, signature, b"gambeson file table v1" + sha256(table), "Table")
    state, signer = rest[-139:-66], int.from_bytes(rest[-66:-64], "big")
    verify(labels[signer][2], rest[-64:], b"gambeson file state v1" + sha256(table) + state, "State")
    return {"state": state.hex(), "labels": [name for name, _, _ in labels]}


def verify(key: bytes, signature: bytes, message: bytes, what: str) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        raise Refused(what) from None


def labels_of(table: bytes) -> list[tuple[str, int, bytes]]:
    at = 30
    labels = []
    for _ in range(int.from_bytes(table[28:30], "big")):
        end = at + 1 + table[at]
        labels.append(
            (table[at + 1 : end].decode(), int.from_bytes(table[end : end + 4], "big"), table[end + 4 : end + 36])
        )
        at = end + 36
    return labels
