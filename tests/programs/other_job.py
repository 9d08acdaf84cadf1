"""Becomes a program, on rank 1 with a file of the job altered in the way that the first argument names (needs root)."""

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path


def sealed(body: bytes) -> bytes:
    """A credential with its trailer."""
    return body + hashlib.sha256(body).digest()


def other_secret(credential: bytes) -> bytes:
    return sealed(credential[:26] + bytes(32) + credential[58:-32])


def other_policy(credential: bytes) -> bytes:
    """The gap timeout, the last of the policy's bytes 3 to 10, is one millisecond less."""
    place = 58 + 4 + 3
    time = int.from_bytes(credential[place : place + 8], "big") - 1
    return sealed(credential[:place] + time.to_bytes(8, "big") + credential[place + 8 : -32])


ALTERATIONS: dict[str, Callable[[bytes], bytes]] = {
    "other-secret": other_secret,
    "other-policy": other_policy,
    "damaged": lambda credential: credential[:40] + b"?" + credential[41:],
    "foreign": lambda credential: b"not a credential",
    "later-version": lambda credential: sealed(credential[:8] + b"\0\2" + credential[10:-32]),
    "readable": lambda credential: credential,
    "other-gambeson": lambda version: b"9" + version,
}


def rank() -> str:
    names = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
    return next(os.environ[name] for name in names if name in os.environ)


how, *program = sys.argv[1:]
if rank() == "1":
    name = "version" if how == "other-gambeson" else "credential"
    altered = Path(os.environ["GAMBESON_JOB"], name)
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="test-altered-", delete=False) as file:
        file.write(ALTERATIONS[how](altered.read_bytes()))
    Path(file.name).chmod(0o644 if how == "readable" else 0o600)
    # Seen by this rank alone; the directory stays the job's.
    script = 'mount --make-rprivate / && mount --bind "$0" "$1" && rm "$0" && shift && exec "$@"'
    program = ["unshare", "-m", "bash", "-c", script, file.name, str(altered), *program]
os.execvp(program[0], program)
