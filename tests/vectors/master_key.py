"""What master keys wrap, and master keys in files, written a second time: wrapped, opened and refused."""

from __future__ import annotations

import hashlib
import hmac
import struct

from cryptography.exceptions import InvalidTag

from vectors.key_file import seal, under_passphrase, unseal
from vectors.reference import Expected, Given, Refused

MAGIC = b"GMBSNMST\x00\x01"
LABEL = b"gambeson master key v1"
COST, SALT, SEALED = 12, 16, 12 + 32 + 16
MAC, SEAL = 1, 2


def master_key_file(given: Given) -> bytes:
    """A master key under a passphrase."""
    before = MAGIC + struct.pack(">III", *given["cost"]) + bytes.fromhex(given["salt"])
    key = under_passphrase(given["passphrase"], before[len(MAGIC) :][:COST], before[-SALT:])
    return before + seal(key, given["nonce"], before, bytes.fromhex(given["master"]))


def derived(master: bytes, salt: bytes, context: bytes) -> bytes:
    """SP 800-108 in counter mode with HMAC-SHA-256, one block."""
    message = struct.pack(">I", 1) + LABEL + b"\0" + salt + hashlib.sha256(context).digest() + struct.pack(">I", 256)
    return hmac.digest(master, message, "sha256")


def wrap(given: Given) -> bytes:
    """A key that a master key has wrapped."""
    context, salt = bytes.fromhex(given["context"]), bytes.fromhex(given["salt"])
    before = bytes([1, MAC]) + struct.pack(">H", len(salt)) + salt
    key = derived(bytes.fromhex(given["master"]), salt, context)
    return before + seal(key, given["nonce"], LABEL + before + context, bytes.fromhex(given["key"]))


def unwrap_by_file(given: Given) -> Expected:
    """A key, with a master key's file and passphrase."""
    file, wrapped, context = (bytes.fromhex(given[name]) for name in ("file", "wrapped", "context"))
    before, sealed = file[:-SEALED], file[-SEALED:]
    if not file.startswith(MAGIC) or len(before) != len(MAGIC) + COST + SALT:
        raise Refused("Refused")
    try:
        master = unseal(
            under_passphrase(given["passphrase"], before[len(MAGIC) :][:COST], before[-SALT:]), before, sealed
        )
    except InvalidTag:
        raise Refused("Refused") from None
    before, sealed = wrapped[:-SEALED], wrapped[-SEALED:]
    if before[:1] != b"\1" or before[1:2] != bytes([MAC]) or before[2:4] != b"\0\x20" or len(before) != 36:
        raise Refused("NotWrappedByIt")
    try:
        return {"key": unseal(derived(master, before[4:], context), LABEL + before + context, sealed).hex()}
    except InvalidTag:
        raise Refused("NotWrappedByIt") from None
