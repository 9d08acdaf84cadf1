"""A site on this host alone, with people who have homes of their own, and a key service."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.mpis import clean_environment

PASSPHRASE = "a master passphrase"

# Stands in for ssh: whoever is reached has a home of his own, and is on this host.
_SSH = """#!/bin/bash
command="${{@: -1}}"
exec env HOME="{home}" bash -c "${{command//"{folder}"/"{home}/.config/gambeson"}}"
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Person:
    """Somebody of the site, or a stranger, with a home."""

    def __init__(self, gambeson: Path, home: Path, keys: str | None) -> None:
        self.gambeson, self.home = gambeson, home
        home.mkdir(exist_ok=True)
        self.environment = clean_environment() | {"HOME": str(home)}
        for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "GAMBESON_KEYS"):
            self.environment.pop(name, None)
        if keys:
            self.environment["GAMBESON_KEYS"] = keys

    def __call__(
        self, *words: str, env: Mapping[str, str] | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Without a terminal, so that nobody is asked."""
        return subprocess.run(
            [str(self.gambeson), *words],
            cwd=self.home,
            env={**self.environment, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            start_new_session=True,
        )

    def does(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        done = self(*words, env=env)
        assert done.returncode == 0, done
        return done.stdout

    def refuses(self, status: int, *words: str, env: Mapping[str, str] | None = None) -> str:
        done = self(*words, env=env)
        assert done.returncode == status, done
        assert done.stderr.startswith("gambeson: ") and done.stderr.count("\n") == 1, done
        return done.stderr

    def secret(self, name: str, text: str) -> str:
        """A file that nobody else may read."""
        path = self.home / name
        path.touch(0o600)
        path.write_text(text + "\n")
        return str(path)

    def labels(self) -> dict[str, int]:
        listed = json.loads(self.does("key", "list", "--json"))["labels"]
        return {label["label"]: label["version"] for label in listed}

    def audit(self, *words: str) -> list[dict[str, Any]]:
        said = self.does("key", "audit", "--json", "--last", "0", *words)
        return [json.loads(line) for line in said.splitlines()]


class KeySite:
    """A site whose one host is this one, and its key service."""

    def __init__(self, gambeson: Path, root: Path) -> None:
        self.gambeson, self.root = gambeson, root
        self.host = os.uname().nodename.lower()
        self.folder, self.port = root / "host", free_port()
        self.keys = f"keyd://{self.host}=127.0.0.1:{self.port}"
        self.administrator = Person(gambeson, root / "administrator", self.keys)
        self.administrator.does("init", "--folder", str(self.folder), "--user", "root", "--name", "ocean")
        self.passphrase = self.administrator.secret("master", PASSPHRASE)
        self.database = self.folder / "keyd" / "keys.db"

    def person(self, name: str) -> Person:
        """Somebody whom the site has certified."""
        person = Person(self.gambeson, self.root / name, self.keys)
        ssh = self.root / f"ssh-{name}"
        ssh.write_text(_SSH.format(home=person.home, folder=self.folder))
        ssh.chmod(0o755)
        enroll = ["enroll", "--user", name, "--folder", str(self.folder), "--ssh", str(ssh), os.uname().nodename]
        self.administrator.does(*enroll)
        return person

    def keyd(self, command: str, *words: str) -> list[str]:
        unasked = [] if command == "status" else ["--passphrase-file", self.passphrase]
        return ["keyd", command, "--folder", str(self.folder), *unasked, *words]

    def init(self) -> str:
        return self.administrator.does(*self.keyd("init"))

    def rules(self, text: str) -> None:
        path = self.folder / "keyd.toml"
        path.write_text(text)
        path.chmod(0o644)

    def start(self, *words: str, before: Sequence[str] = ()) -> subprocess.Popen[str]:
        """A service, which says that it listens. `before`: what becomes it."""
        serve = self.keyd("serve", "--listen", f"127.0.0.1:{self.port}", *words)
        command = [*before, str(self.gambeson), *serve]
        process = subprocess.Popen(
            command,
            env=self.administrator.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        said = process.stdout.readline()
        if not said.startswith("gambeson keyd: listening on "):
            process.kill()
            raise AssertionError((said, process.communicate()))
        return process

    @contextlib.contextmanager
    def serving(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        process = self.start(*words)
        try:
            yield process
        finally:
            end(process)

    def forget(self) -> None:
        """Takes the database away, as a broken disk does."""
        for path in (self.folder / "keyd").iterdir():
            if path.name.startswith("keys.db") and not path.name.endswith(".master"):
                path.unlink()

    def copy(self, to: Path) -> None:
        """The whole folder, as a thief has it."""
        shutil.copytree(self.folder / "keyd", to, ignore=shutil.ignore_patterns("*.control"))


def end(process: subprocess.Popen[str]) -> str:
    """Ends a service, and says what it had to say on stderr."""
    process.terminate()
    try:
        _, said = process.communicate(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return said
