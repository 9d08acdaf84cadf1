"""Asks the holder of this job for a secret, as the job's processes do: ask.py NAME writes it to stdout. Stands in for
the holder, too, for programs that import it."""

import os
import socket
import struct
import sys
from pathlib import Path

GIVEN, NONE = 0, 1


def receive(connection: socket.socket, length: int) -> bytes:
    received = b""
    while len(received) < length:
        part = connection.recv(length - len(received))
        if not part:
            raise ConnectionError("the holder has closed the connection")
        received += part
    return received


def place() -> Path:
    return Path(os.environ["GAMBESON_JOB"], "secrets")


def ask(name: str, at: Path | None = None) -> tuple[int, bytes]:
    """The holder's status, and the secret or why it is not given."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(at or place()))
        connection.sendall(struct.pack(">I", len(name)) + name.encode())
        status, length = struct.unpack(">BI", receive(connection, 5))
        return status, receive(connection, length)


def given(name: str) -> bytes:
    status, answer = ask(name)
    if status != GIVEN:
        raise PermissionError(f"{name}: {answer.decode()}")
    return answer


def stand_in(at: Path, credential: bytes, user: int | None = None) -> None:
    """A process that gives this credential to whoever asks, until the one that calls this has ended."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(at))
    at.chmod(0o777)
    parent = os.getpid()
    ready, done = os.pipe()
    if os.fork():
        os.close(done)
        os.read(ready, 1)
        return
    if user is not None:
        os.setresuid(user, user, user)
    # Whose socket it is, is whose it was when it began to listen.
    listener.listen()
    os.close(ready)
    os.close(done)
    listener.settimeout(0.1)
    while os.getppid() == parent:
        try:
            connection = listener.accept()[0]
        except TimeoutError:
            continue
        with connection:
            connection.settimeout(10)
            name = receive(connection, *struct.unpack(">I", receive(connection, 4)))
            answer = (GIVEN, credential) if name == b"credential" else (NONE, b"")
            connection.sendall(struct.pack(">BI", answer[0], len(answer[1])) + answer[1])
    os._exit(0)


if __name__ == "__main__":
    sys.stdout.buffer.write(given(sys.argv[1]))
