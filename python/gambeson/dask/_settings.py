"""What Dask's configuration says of links: `distributed.comm.gambeson.*`."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
from dask.utils import parse_timedelta

from gambeson.dask._credential import read_credential
from gambeson.link import Domain, Identity, IdentityUnusable, Policy, Trust
from gambeson.link._policy import trusting

ROLE = "dask"
"""What certificates must say of processes that belong to clusters: URI `gambeson:role:dask`."""
CLASS = "task"
"""The class of links for data that is not sensitive, in policies; a farm's have the same."""
_CONFIG = "distributed.comm.gambeson"
_KNOWN = {"credential", "certificate", "key", "authorities", "policy", "trusted", "shm", "patience"}
_NOBODY = (
    "gambeson:// does not know who belongs to the cluster: make a credential with gambeson.dask.credential(path), and "
    f"set {_CONFIG}.credential to its path for every process (in the environment: "
    "DASK_DISTRIBUTED__COMM__GAMBESON__CREDENTIAL); or set certificate, key and authorities; or start all of it under "
    "gambeson run"
)


@dataclass(frozen=True)
class Settings:
    """How domains of a process are opened."""

    credential: str | None
    certificate: str | None
    key: str | None
    authorities: str | None
    policy: str | None
    trusted: tuple[str, ...]
    shm: bool
    patience: float
    encrypted: bool
    """Whether Dask requires that everything is."""

    @staticmethod
    def find(connection_args: Mapping[str, Any]) -> Settings:
        """What holds for connections with these arguments.

        `extra_conn_args` of a `distributed.Security` come first, for programs that are clients of several clusters.
        """
        found = {str(name).replace("-", "_"): value for name, value in (dask.config.get(_CONFIG, None) or {}).items()}
        extra = connection_args.get("extra_conn_args") or {}
        found |= {name: value for name, value in extra.items() if name in _KNOWN}
        if unknown := sorted(found.keys() - _KNOWN):
            raise ValueError(f"{_CONFIG}.{unknown[0]} is no setting; there are {', '.join(sorted(_KNOWN))}")
        texts = {name: _text(name, found.get(name)) for name in _KNOWN - {"trusted", "shm", "patience"}}
        shm = found.get("shm", True)
        if not isinstance(shm, bool):
            raise ValueError(f"{_CONFIG}.shm is true or false, and not {shm!r}")
        patience = parse_timedelta(found.get("patience", "2s"), default="seconds")
        trusted = _networks(found.get("trusted"))
        if trusted and texts["policy"]:
            raise ValueError(f"{_CONFIG}.trusted is short for a policy; set one of them")
        encrypted = bool(connection_args.get("require_encryption"))
        return Settings(**texts, trusted=trusted, shm=shm, patience=patience, encrypted=encrypted)

    @property
    def role(self) -> str:
        """What who is talked to must be."""
        return ROLE if self.certificate else "rank"

    @property
    def in_job(self) -> bool:
        """Whether the job of `gambeson run` says who belongs to the cluster, and what policy there is."""
        return not (self.certificate or self.key or self.authorities or self.credential)

    @property
    def chooses(self) -> bool:
        """Whether some data may go unsealed, if a policy says so."""
        return not self.encrypted and bool(self.trusted or self.policy or self.in_job)

    @property
    def why_sealed(self) -> str:
        """Why none may, if so."""
        if self.encrypted:
            return "Dask requires encryption here"
        return "this end trusts no network, and has no policy"

    def open(self, listen: str | None, address: str | None) -> Domain:
        """A domain with a key of its own, in a job of `gambeson run` one of the job.

        `address` is what site directories know this host by. Raises `IdentityUnusable` and `SystemRefused`.
        """
        listening = [] if listen is None else [listen]
        if self.certificate or self.key or self.authorities:
            identity, trust = self._certified()
        elif self.credential:
            member = read_credential(self.credential)
            identity, trust = Identity.generate(), Trust().job(member.job, member.secret, bytes(32))
        elif self.trusted or self.policy:
            what = f"{_CONFIG}.{'trusted' if self.trusted else 'policy'} goes with a credential or certificates"
            raise IdentityUnusable(f"{what}, and there are none; in a job its own policy says what is sealed")
        else:
            try:
                return Domain.from_job(listen=listening, address=address, shm=self.shm, patience=self.patience)
            except IdentityUnusable as cause:
                raise IdentityUnusable(_NOBODY) from cause
        policy = Policy.read(self.policy) if self.policy else Policy.parse(trusting(self.trusted, CLASS))
        return Domain(
            identity, trust, listen=listening, address=address, policy=policy, shm=self.shm, patience=self.patience
        )

    def _certified(self) -> tuple[Identity, Trust]:
        parts = {"certificate": self.certificate, "key": self.key, "authorities": self.authorities}
        if missing := [name for name, path in parts.items() if not path]:
            raise IdentityUnusable(f"certificate, key and authorities go together; {_CONFIG}.{missing[0]} is missing")
        if self.credential:
            raise IdentityUnusable(f"set either {_CONFIG}.credential or certificate, key and authorities, not both")
        chain, key, authorities = (_read(f"{_CONFIG}.{name}", path or "") for name, path in parts.items())
        return Identity.from_pem(chain, key), Trust().authorities(authorities)


def _text(name: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Path):
        return str(value)
    raise ValueError(f"{_CONFIG}.{name} is a text, and not {value!r}")


def _networks(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple, type(None))):
        raise ValueError(f'{_CONFIG}.trusted is a list of networks, as ["10.1.0.0/16"], and not {value!r}')
    try:
        return tuple(str(ipaddress.ip_network(network)) for network in value or ())
    except ValueError as cause:
        raise ValueError(f"{_CONFIG}.trusted has what is no network: {cause}") from cause


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as cause:
        raise IdentityUnusable(f"{name}, {path}, cannot be read: {cause.strerror}") from cause
