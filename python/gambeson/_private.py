"""Files with a secret in them, which nobody but their owner can read."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from gambeson.link import IdentityUnusable

LONGEST = 1 << 16


def read_private(path: Path, what: str, remedy: str) -> str:
    """The text of such a file. `what` is what sentences call it, and `remedy` what they say of one that is not there.

    Raises `IdentityUnusable` for one that others could have read.
    """
    try:
        with path.expanduser().open("rb") as file:
            facts = os.fstat(file.fileno())
            content = file.read(LONGEST)
    except OSError as cause:
        raise IdentityUnusable(f"{what} {path} cannot be read: {cause.strerror}; {remedy}") from cause
    if facts.st_uid not in (os.geteuid(), 0):
        raise IdentityUnusable(f"{what} {path} belongs to another user (uid {facts.st_uid})")
    if facts.st_mode & 0o077:
        mode = f"mode {facts.st_mode & 0o777:04o}"
        raise IdentityUnusable(
            f"others than its owner can get at {what} {path} ({mode}); if nobody did, chmod 600 it, else delete it and "
            "make another"
        )
    return content.decode(errors="replace")


def write_private(path: Path, text: str, *, replace: bool) -> None:
    """Writes such a file at once: nobody ever sees half of it. One that is there is replaced, or left as it is.

    Raises `OSError`.
    """
    handle, made = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        if replace:
            os.replace(made, path)  # noqa: PTH105
        else:
            # Of two processes that make it at once the first one wins.
            with contextlib.suppress(FileExistsError):
                os.link(made, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(made).unlink()
