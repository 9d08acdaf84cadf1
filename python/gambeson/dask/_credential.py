"""The file by which the processes of one cluster know each other."""

from __future__ import annotations

import os
import secrets
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from gambeson._private import read_private, write_private
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
        write_private(wanted, _TEXT.format(job=secrets.token_hex(16), secret=secrets.token_hex(32)), replace=False)
    read_credential(str(wanted))
    return str(wanted)


def read_credential(path: str) -> Credential:
    """Reads a credential that nobody but its owner can have read."""
    remedy = f"gambeson.dask.credential({path!r}) makes one"
    content = read_private(Path(path), "the cluster's credential", remedy)
    try:
        found = tomllib.loads(content)
        job, secret = bytes.fromhex(found["job"]), bytes.fromhex(found["secret"])
        if (len(job), len(secret)) != (16, 32):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        what = f"{path} is no credential of a cluster; gambeson.dask.credential makes one in a new file"
        raise IdentityUnusable(what) from None
    return Credential(job, secret)
