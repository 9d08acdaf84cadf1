"""Workers at stations, hosts where somebody runs `gambeson station`: listed, met at a relay, or looked for on this
network.
"""

from __future__ import annotations

import contextlib
import json
import threading
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from gambeson.farm._discovery import find
from gambeson.farm._errors import FarmError
from gambeson.farm._invitation import Invitation
from gambeson.farm._recruit import Recruit, Recruiter, address_of, told
from gambeson.farm.station import INVITE, NAME, START
from gambeson.link import Answers, Domain, Error, Startpoint

JOINING = 30.0
"""Seconds that a station has to start a worker."""


@dataclass(eq=False)
class Guest(Recruit):
    """A worker that a station has started for this manager; it is there as long as its answers are taken."""

    startpoint: Startpoint
    answers: Answers
    _status: int | None = None
    _taking: threading.Lock = field(default_factory=threading.Lock)

    def invite(self, invitation: Invitation) -> None:
        said = {"key": self.key.hex(), "invitation": invitation.encode()}
        self.startpoint.call(INVITE, json.dumps(said).encode(), timeout=JOINING)

    def wait(self) -> None:
        with contextlib.suppress(Error, StopIteration), self._taking:
            self._status = json.loads(next(self.answers))["status"]

    def ended(self) -> str | None:
        return told(self._status)

    def dismiss(self, patience: float = 0.0) -> None:
        # If it ends by itself, it says so to who waits for it.
        if patience and self._taking.acquire(timeout=patience):
            self._taking.release()
        self.answers.close()
        self.startpoint.close()


@dataclass
class Stations(Recruiter):
    """Recruits at stations, whose key hashes are known: by address, or, where one has none, by looking for it."""

    keys: Mapping[str, str] = field(default_factory=dict)
    """By host, as `hosts` has them: the station's key."""

    def reachable(self) -> list[str]:
        listed = [host.rpartition(":")[0].strip("[]") for host in self.hosts if ":" in host]
        return listed or [address.rpartition(":")[0] for address in find(self.keys.values()).values()]

    def start(self, host: str, domain: Domain) -> Recruit:
        key = self.keys[host]
        relay, at_relay, _ = host.partition("/")
        address = host if ":" in host else find([key]).get(key)
        if address is None:
            what = (
                f"no station on this network answers for the key {key[:12]}...; let it run with --announce, or give "
                "its address"
            )
            raise FarmError(what)
        name = f"{self.label}-{next(self._count)}"
        domain.pin(bytes.fromhex(key), f"the station {host}", ["station"])
        try:
            owner = bytes.fromhex(key)
            startpoint = (
                domain.attach_via(relay, NAME, key=owner, timeout=JOINING)
                if at_relay
                else domain.attach(address, NAME, key=owner, timeout=JOINING)
            )
            answers = startpoint.stream(START, timeout=None)
            worker = bytes.fromhex(json.loads(next(iter(answers)))["key"])
        except (Error, OSError, ValueError, StopIteration) as error:
            what = f"the station at {address} starts no worker: {error}"
            raise FarmError(what) from error
        # Behind a relay it proves its key, and where it is nobody knows.
        named = key if at_relay else address.rpartition(":")[0].strip("[]")
        known = None if at_relay else address_of(named)
        return Guest(name, host, named, known, False, worker, startpoint, answers)


def stations(*listed: str, file: str | PathLike[str] | None = None, slots: int | None = None) -> Stations:
    """Workers at stations: each `ADDRESS:PORT=HASH`, or `RELAY:PORT/HASH` of one that waits at a relay, whose host is
    called by its hash then, or `HASH` alone of one that is looked for on this network.

    `file` has more, as TOML: `[[station]]` with a `key` and, if it is known, an `address`, or a `relay`. As many
    workers as `slots` are asked for at each; a station has a bound of its own, too.
    """
    entries = [_split(entry) for entry in listed]
    if file is not None:
        entries += list(_read(Path(file)))
    if not entries:
        raise ValueError("name stations to recruit workers at")
    keys = dict(entries)
    return Stations((), list(keys), slots, label="station", keys=keys)


def _split(entry: str) -> tuple[str, str]:
    if "/" in entry:
        relay, _, key = entry.rpartition("/")
        return _at(relay, _checked(key, entry))
    address, _, key = entry.rpartition("=")
    return address or key, _checked(key, entry)


def _at(relay: str, key: str) -> tuple[str, str]:
    return f"{relay}/{key}", key


def _read(path: Path) -> Iterator[tuple[str, str]]:
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("station", []):
        key = _checked(str(entry.get("key", "")), f"{path}: {entry}")
        yield _at(entry["relay"], key) if "relay" in entry else (str(entry.get("address", key)), key)


def _checked(key: str, where: str) -> str:
    if len(key) != 64 or not all(digit in "0123456789abcdef" for digit in key.lower()):
        what = f"{where!r} has no key hash of 64 hexadecimal digits, which a station prints when it starts"
        raise ValueError(what)
    return key.lower()
