"""The file by which the processes of one cluster know each other."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from gambeson.link import IdentityUnusable

_TEXT = """\
# What the processes of one Dask cluster know each other by (gambeson.dask). Whoever can read this file can join the
# cluster and run code in it: keep it at mode 0600, and give it only to who may.
job = "{job}"
secret = "{secret}"
"""


@dataclass(frozen=True)
class Credential:
    """A cluster's name and its secret."""

    job: bytes
    secret: bytes = field(repr=False)


def credential(path: str | os.PathLike[str]) -> str:
    """Makes the credential of a cluster, a file that its owner alone can read, unless it is there already; its path,
    made absolute: `dask.config.set({"distributed.comm.gambeson.credential": credential("cluster.toml")})`.

    A file is good for many clusters, whose processes then accept each other. Raises `IdentityUnusable` for a file that
    is no credential or that others could have read, and `OSError`.
    """
    wanted = Path(path).expanduser().absolute()
    if not wanted.exists():
        text = _TEXT.format(job=secrets.token_hex(16), secret=secrets.token_hex(32))
        # Nobody ever sees half of it, and of two processes that make it at once the first one wins.
        handle, made = tempfile.mkstemp(prefix=f".{wanted.name}.", dir=wanted.parent)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
            with contextlib.suppress(FileExistsError):
                os.link(made, wanted)
        finally:
            Path(made).unlink()
    read_credential(str(wanted))
    return str(wanted)


def read_credential(path: str) -> Credential:
    """Reads a credential that nobody but its owner can have read."""
    try:
        with Path(path).expanduser().open("rb") as file:
            facts = os.fstat(file.fileno())
            content = file.read(1 << 16)
    except OSError as cause:
        remedy = f"gambeson.dask.credential({path!r}) makes one"
        what = f"the cluster's credential {path} cannot be read: {cause.strerror}; {remedy}"
        raise IdentityUnusable(what) from cause
    if facts.st_uid not in (os.geteuid(), 0):
        raise IdentityUnusable(f"the cluster's credential {path} belongs to another user (uid {facts.st_uid})")
    if facts.st_mode & 0o077:
        what = (
            f"others than its owner can get at the cluster's credential {path} (mode {facts.st_mode & 0o777:04o}); "
            "if nobody did, chmod 600 it, else delete it and make another"
        )
        raise IdentityUnusable(what)
    try:
        found = tomllib.loads(content.decode())
        job, secret = bytes.fromhex(found["job"]), bytes.fromhex(found["secret"])
        if (len(job), len(secret)) != (16, 32):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        what = f"{path} is no credential of a cluster; gambeson.dask.credential makes one in a new file"
        raise IdentityUnusable(what) from None
    return Credential(job, secret)
