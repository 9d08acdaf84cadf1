"""Daemons on a site's hosts, what is ordered at them, and whether anything is left of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from harness.site import Site

RULES = """
[[allow]]
identity = "user:root"
accounts = ["root", "nobody"]
"""

# What a command leaves behind: a process with a session of its own, whose parent has ended, and which ignores SIGTERM.
STRAY = '(trap "" TERM HUP; setsid sh -c "trap \\"\\" TERM; sleep {mark}; :" & ) & sleep 0.3; '


@contextlib.contextmanager
def serving(site: Site, host: str, rules: str = RULES, log: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A daemon on a host, with these rules."""
    site.etc(host, "daemon.toml").write_text(rules)
    with site.stays(host, "daemon", "--log", str(log or audit_log(site, host))) as (process, said):
        assert said.startswith("gambesond: listening on "), (said, process.communicate())
        yield process


def audit_log(site: Site, host: str) -> Path:
    return site.root / host / "audit.log"


def exec_on(
    site: Site, host: str, *words: str, stdin: str = "", options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    quoted = " ".join(f"'{word}'" for word in words)
    return site.shell("h1", site.words(["exec", *options, host, "--", quoted]), stdin)


def gone(mark: str, within: float = 15) -> bool:
    """Whether no process has this word among its arguments, soon."""
    deadline = time.monotonic() + within
    while found := [line for line in running() if mark in line]:
        if time.monotonic() > deadline:
            print(found)
            return False
        time.sleep(0.05)
    return True


def running() -> list[str]:
    lines = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                lines.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return lines


def keeper_of(command: str) -> int:
    """The process that keeps the one that runs this command: the first of its parents that is the daemon's program."""
    processes = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    pid = next(int(entry.name) for entry in processes if cmdline(entry).startswith(command))
    while " daemon --log " not in cmdline(Path("/proc") / str(pid)):
        status = (Path("/proc") / str(pid) / "status").read_text()
        pid = int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:")))
    return pid


def cmdline(process: Path) -> str:
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
