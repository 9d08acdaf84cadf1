"""The bytes on the wire: libfabric's tcp provider around, Gambeson's records inside.

A connection begins with a request and a response: a 32-byte header, then as many bytes as it says (8 here). After that
come messages: 16 bytes of base header, which give the size of the whole header and of the whole message, then the rest.
Integers of core tcp are in the machine's order, little-endian wherever these tests run. The record's layout is that of
crates/gambeson-proto/src/record.rs.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

REQUEST_LEN = 32
BASE_LEN = 16
OP_MSG, OP_TAG, OP_READ_REQ, OP_READ_RSP, OP_WRITE, OP_TAG_RTS, OP_CTS, OP_DATA = range(8)
OP_DATA_ACK = 2
CONTROL_VERSION = 3
CONNREQ, CONNRESP, NACK = 0, 1, 6

Span = tuple[int, int]
"""First byte and the byte after the last."""

BASE_FIELDS: dict[str, Span] = {
    "version": (0, 1),
    "op": (1, 2),
    "flags": (2, 4),
    "op_data": (4, 5),
    "rma_iov_cnt": (5, 6),
    "hdr_size": (6, 7),
    "id": (7, 8),
    "size": (8, 16),
}
REQUEST_FIELDS: dict[str, Span] = {
    "version": (0, 1),
    "type": (1, 2),
    "seg_size": (2, 4),
    "seg_no": (4, 8),
    "conn_id": (8, 16),
    "msg_id": (16, 24),
    "conn_data": (24, 32),
    "rdm.version": (32, 33),
    "rdm.features": (33, 34),
    "rdm.port": (34, 36),
    "rdm.pid": (36, 40),
}

TAG_LEN = 16
HEADER_LEN = 40
ENVELOPE_LEN = 40
CARD_LEN = 64
INTRODUCTION_LEN = CARD_LEN + 8
FLAG_INTRODUCTION = 1
FLAG_PAYLOAD = 2


def record_fields(record: bytes | bytearray) -> dict[str, Span]:
    """Where each field of a record stands; what lies before the envelope is readable for everybody."""
    fields = {
        "tag": (0, 16),
        "version": (16, 17),
        "flags": (17, 18),
        "reserved": (18, 20),
        "epoch": (20, 24),
        "connection": (24, 32),
        "sequence": (32, 40),
    }
    at = HEADER_LEN
    if len(record) < HEADER_LEN + ENVELOPE_LEN:
        return {"payload": (0, len(record))} if record else {}
    flags = record[17]
    if flags & FLAG_INTRODUCTION and len(record) >= at + INTRODUCTION_LEN + ENVELOPE_LEN:
        fields["card"] = (at, at + CARD_LEN)
        fields["policy"] = (at + CARD_LEN, at + INTRODUCTION_LEN)
        at += INTRODUCTION_LEN
    fields["envelope"] = (at, at + ENVELOPE_LEN)
    at += ENVELOPE_LEN
    if flags & FLAG_PAYLOAD and len(record) >= at + TAG_LEN:
        fields["payload tag"] = (at, at + TAG_LEN)
        at += TAG_LEN
    if len(record) > at:
        fields["payload"] = (at, len(record))
    return fields


@dataclass
class Message:
    """One message of core tcp."""

    head: bytes
    """The whole header, 16 bytes or more."""
    body: bytes

    @property
    def op(self) -> int:
        return self.head[1]

    def encode(self) -> bytes:
        return self.head + self.body

    def sized(self, body: bytes) -> Message:
        """The same header around another body, with the size that belongs to it."""
        return Message(self.head[:8] + struct.pack("<Q", len(self.head) + len(body)) + self.head[16:], body)


def message(body: bytes, op: int = OP_MSG, flags: int = 0, op_data: int = 0, extra: bytes = b"") -> Message:
    """A message made from nothing."""
    size = BASE_LEN + len(extra)
    return Message(struct.pack("<BBHBBBBQ", 3, op, flags, op_data, 0, size, 0, size + len(body)) + extra, body)


def head_lens(base: bytes) -> tuple[int, int]:
    """Lengths of header and body that a base header tells."""
    hdr_size = base[6]
    (size,) = struct.unpack_from("<Q", base, 8)
    return hdr_size, size - hdr_size


def request(port: int, pid: int) -> bytes:
    """A connection request of somebody who listens at `port`."""
    head = struct.pack("<BBHIQQQ", CONTROL_VERSION, CONNREQ, 0, 0, 0, 0, 1)
    return head[:2] + struct.pack(">H", 8) + head[4:] + struct.pack(">BBHI", 1, 0, port, pid)


def flip(data: bytes, bit: int) -> bytes:
    """`data` with one bit turned over; bits count from the first byte on."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << (bit % 8)
    return bytes(changed)
