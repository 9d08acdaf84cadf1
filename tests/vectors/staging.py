"""Staged code and messages of several buffers, written a second time."""

from __future__ import annotations

import struct

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from vectors.reference import Expected, Given, Refused
from vectors.startpoint import key_hash

CONTEXT = b" " * 64 + b"Gambeson, staged code\0"
ALIGN = 16


def _message(given: Given) -> bytes:
    job, code = bytes.fromhex(given["job"]), bytes.fromhex(given["hash"])
    return CONTEXT + job + struct.pack(">Q", given["version"]) + code + given["stage"].encode()


def stage(given: Given) -> Expected:
    """What its owner signs of a stage's code."""
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(given["owner_seed"]))
    public = key.public_key().public_bytes_raw()
    return {"owner": key_hash(public).hex(), "key": public.hex(), "signature": key.sign(_message(given)).hex()}


def staged(given: Given) -> Expected:
    """Whether a worker loads it."""
    public = bytes.fromhex(given["key"])
    if key_hash(public).hex() != given["owner"]:
        raise Refused("Unsigned")
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(bytes.fromhex(given["signature"]), _message(given))
    except InvalidSignature:
        raise Refused("Unsigned") from None
    return {}


def frame(given: Given) -> Expected:
    """A message of buffers as it goes over a link."""
    buffers = [bytes.fromhex(buffer) for buffer in given["buffers"]]
    out = struct.pack("<QII", given["number"], given["word"], len(buffers))
    if len(buffers) != 1:
        out += b"".join(struct.pack("<Q", len(buffer)) for buffer in buffers)
        out += bytes(-len(out) % ALIGN)
    for at, buffer in enumerate(buffers):
        out += buffer + (bytes(-len(buffer) % ALIGN) if at + 1 < len(buffers) else b"")
    return {"frame": out.hex()}


def read_frame(given: Given) -> Expected:
    """The buffers of one that came."""
    data = bytes.fromhex(given["frame"])
    if len(data) < ALIGN:
        raise Refused("Garbled")
    number, word, count = struct.unpack_from("<QII", data)
    if count == 1:
        return {"number": number, "word": word, "buffers": [data[ALIGN:].hex()]}
    end = ALIGN + 8 * count
    if end > len(data):
        raise Refused("Garbled")
    lengths = struct.unpack_from(f"<{count}Q", data, ALIGN)
    end += -end % ALIGN
    buffers = []
    for length in lengths:
        start = end + -end % ALIGN
        end = start + length
        if end > len(data):
            raise Refused("Garbled")
        buffers.append(data[start:end].hex())
    if end != len(data):
        raise Refused("Garbled")
    return {"number": number, "word": word, "buffers": buffers}
