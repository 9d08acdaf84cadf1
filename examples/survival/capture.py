"""A packet capture in a file that Wireshark and tcpdump read, by Linux's packet sockets alone."""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

ETH_P_ALL = 3
PACKET_OUTGOING = 4
SO_RCVBUFFORCE = 33
PACKET_STATISTICS = 6
SOL_PACKET = 263
_FILE_HEADER = struct.Struct("<IHHiIII")
_PACKET_HEADER = struct.Struct("<IIII")


class Capture:
    """Writes every packet that `interface` receives to `path` while the block runs."""

    def __init__(self, interface: str, path: Path) -> None:
        context = multiprocessing.get_context("fork")
        self._ready, self._stop = context.Event(), context.Event()
        self._process = context.Process(target=_record, args=(interface, path, self._ready, self._stop))

    def __enter__(self) -> Capture:
        self._process.start()
        if not self._ready.wait(10):
            sys.exit("demo: the packet capture did not start: a packet socket needs the right to read the network")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        time.sleep(0.3)
        self._stop.set()
        self._process.join()


def _record(
    interface: str,
    path: Path,
    ready: multiprocessing.synchronize.Event,
    stop: multiprocessing.synchronize.Event,
) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as packets, path.open("wb") as file:
        for option, size in ((SO_RCVBUFFORCE, 1 << 28), (socket.SO_RCVBUF, 1 << 26)):
            try:
                packets.setsockopt(socket.SOL_SOCKET, option, size)
                break
            except PermissionError:
                continue
        packets.bind((interface, 0))
        packets.settimeout(0.1)
        file.write(_FILE_HEADER.pack(0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        ready.set()
        while True:
            try:
                frame, origin = packets.recvfrom(262144)
            except TimeoutError:
                if stop.is_set():
                    break
                continue
            # On loopback every packet passes twice: once on its way out, once in.
            if origin[2] == PACKET_OUTGOING:
                continue
            now = time.time()
            file.write(_PACKET_HEADER.pack(int(now), int(now % 1 * 1e6), len(frame), len(frame)))
            file.write(frame)
        _, dropped = struct.unpack("II", packets.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        if dropped:
            print(f"demo: the capture missed {dropped} packets", file=sys.stderr)


def payloads(path: Path) -> Iterator[bytes]:
    """What the TCP packets of a capture carry, those without data left out."""
    data = path.read_bytes()
    at = _FILE_HEADER.size
    while at + _PACKET_HEADER.size <= len(data):
        length = _PACKET_HEADER.unpack_from(data, at)[2]
        frame = data[at + _PACKET_HEADER.size : at + _PACKET_HEADER.size + length]
        at += _PACKET_HEADER.size + length
        kind = frame[12:14]
        if kind == b"\x08\x00" and frame[23] == socket.IPPROTO_TCP:
            start = 14 + (frame[14] & 15) * 4
        elif kind == b"\x86\xdd" and frame[20] == socket.IPPROTO_TCP:
            start = 54
        else:
            continue
        payload = frame[start + (frame[start + 12] >> 4) * 4 :]
        if payload:
            yield payload
