"""Becomes a program, on rank 1 with the job altered in the way that the first argument names (needs root)."""

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import ask


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
    "damaged": lambda credential: credential[:40] + bytes([credential[40] ^ 1]) + credential[41:],
    "foreign": lambda credential: b"not a credential",
    "later-version": lambda credential: sealed(credential[:8] + b"\0\2" + credential[10:-32]),
    "held-by-another": lambda credential: credential,
    "other-gambeson": lambda version: b"9" + version,
}


def rank() -> str:
    names = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
    return next(os.environ[name] for name in names if name in os.environ)


how, *program = sys.argv[1:]
if rank() == "1":
    stand_in = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="test-altered-"), "file")
    altered = ask.place()
    if how == "other-gambeson":
        altered = altered.with_name("version")
        stand_in.write_bytes(ALTERATIONS[how](altered.read_bytes()))
    else:
        user = 65534 if how == "held-by-another" else None
        ask.stand_in(stand_in, ALTERATIONS[how](ask.given("credential")), user)
    # Seen by this rank alone; the directory stays the job's.
    script = 'mount --make-rprivate / && mount --bind "$0" "$1" && rm -r "${0%/*}" && shift && exec "$@"'
    program = ["unshare", "-m", "bash", "-c", script, str(stand_in), str(altered), *program]
os.execvp(program[0], program)
