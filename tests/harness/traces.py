"""Reads what `gambeson run --trace` wrote, with nothing of Gambeson's: libzstd, JSON and numpy (docs/traces.md)."""

from __future__ import annotations

import ctypes
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SEND, SENT, RECEIVED, CLOSED = 2, 3, 4, 5
RECORD = np.dtype(
    [
        ("wall_ns", "<u8"),
        ("cpu_ns", "<u8"),
        ("gap_ns", "<u8"),
        ("number", "<u8"),
        ("bytes", "<u8"),
        ("peer", "<u4"),
        ("kind", "u1"),
        ("lane", "u1"),
        ("thread", "<u2"),
    ]
)


@dataclass(frozen=True)
class Trace:
    header: dict[str, Any]
    ranks: list[Any]
    """Of each rank an array of RECORD."""

    def of(self, rank: int, kind: int) -> Any:
        records = self.ranks[rank]
        return records[records["kind"] == kind]

    def messages(self, kind: int) -> set[tuple[int, int, int, int]]:
        """Sender, receiver, number and size of each message whose SEND or RECEIVED is there; none twice."""
        found = []
        for rank in range(len(self.ranks)):
            for record in self.of(rank, kind):
                peer, number, size = int(record["peer"]), int(record["number"]), int(record["bytes"])
                found.append((*((rank, peer) if kind == SEND else (peer, rank)), number, size))
        assert len(found) == len(set(found)), "a message stands there twice"
        return set(found)


def read(path: Path) -> Trace:
    data = _unpack(path.read_bytes())
    assert data[:8] == b"GBT1\0\0\0\0"
    (length,) = struct.unpack("<I", data[8:12])
    header = json.loads(data[12 : 12 + length])
    place, ranks = 12 + length, []
    for rank in header["ranks"]:
        count = rank["records"]
        columns = np.frombuffer(data, "u1", RECORD.itemsize * count, place).reshape(RECORD.itemsize, count)
        ranks.append(np.ascontiguousarray(columns.T).view(RECORD).reshape(count))
        place += RECORD.itemsize * count
    assert place == len(data)
    return Trace(header, ranks)


def _unpack(packed: bytes) -> bytes:
    zstd = ctypes.CDLL("libzstd.so.1")
    zstd.ZSTD_getFrameContentSize.restype = ctypes.c_uint64
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    size = zstd.ZSTD_getFrameContentSize(packed, ctypes.c_size_t(len(packed)))
    assert size < 1 << 32, "no zstd, or a frame that does not tell its size"
    data = ctypes.create_string_buffer(size)
    done = zstd.ZSTD_decompress(data, ctypes.c_size_t(size), packed, ctypes.c_size_t(len(packed)))
    assert done == size
    return data.raw
