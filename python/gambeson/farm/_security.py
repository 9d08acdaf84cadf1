"""Who may see what, and what is sealed: decided for each task and worker (secure-muskel paper, sections 4.4 and 5)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Final

from gambeson.farm._annotation import Marks, check_label
from gambeson.farm._protocol import CLASS
from gambeson.link import Policy
from gambeson.link._policy import trusting

SEALED: Final = trusting([], CLASS)
"""The policy that seals everything."""


@dataclass(frozen=True)
class Place:
    """Where a worker is, as it proved or stated."""

    name: str
    host: str
    address: str | None
    local: bool
    """Whether the manager started it on its own host."""


@dataclass(frozen=True)
class Decision:
    """How something goes, and by which rule."""

    sealed: bool
    rule: str


class Security:
    """What a farm protects beyond annotations. Everything is sealed unless something here says otherwise.

    `trusted` has networks (`10.1.0.0/16`) inside which data that is not sensitive is authenticated and not encrypted;
    `policy` instead a file with rules of its own for links of the class `task` (gambeson.toml). To `insecure_hosts`,
    names or addresses, everything is sealed, whatever else is said. `clearance` says which labels a host may see: data
    with one of the labels that stand there goes to no other host. `unpickle` has hosts and networks whose results are
    unpickled, beside the workers that run on this host: unpickling runs what the sender wants. From others come plain
    data, arrays and Arrow tables. `pinned` would be a worker's: see `gambeson worker --help`.
    """

    def __init__(
        self,
        *,
        trusted: Iterable[str] = (),
        policy: str | PathLike[str] | None = None,
        insecure_hosts: Iterable[str] = (),
        clearance: Mapping[str, Iterable[str]] | None = None,
        unpickle: Iterable[str] = (),
    ) -> None:
        if isinstance(trusted, str) or isinstance(insecure_hosts, str) or isinstance(unpickle, str):
            raise TypeError('networks and hosts are lists, as ["10.1.0.0/16"]')
        self.trusted = [ipaddress.ip_network(network) for network in trusted]
        if policy is not None and self.trusted:
            raise ValueError("trusted is short for a policy; give one of them")
        self.insecure_hosts = frozenset(insecure_hosts)
        self.clearance = {
            host: frozenset(check_label(label) for label in ([labels] if isinstance(labels, str) else labels))
            for host, labels in (clearance or {}).items()
        }
        self.restricted = frozenset[str]().union(*self.clearance.values())
        self.unpickle = tuple(unpickle)
        self.document = self._document(policy)

    def _document(self, policy: str | PathLike[str] | None) -> str:
        """The policy of the farm's links, for both ends."""
        if policy is not None:
            Policy.read(policy)
            with open(policy, encoding="utf-8") as file:  # noqa: PTH123
                return file.read()
        return trusting(self.trusted, CLASS)

    def policy(self) -> Policy:
        """The policy of the manager's end."""
        return Policy.parse(self.document, "the farm's policy")

    def document_for(self, place: Place) -> str:
        """The policy of links to a worker there, by which it goes."""
        return SEALED if self._insecure(place) else self.document

    def _insecure(self, place: Place) -> str | None:
        return next((host for host in self.insecure_hosts if _is_at(place, host)), None)

    def may_see(self, place: Place, labels: frozenset[str]) -> bool:
        """Whether data with these labels may go there."""
        restricted = labels & self.restricted
        return not restricted or restricted <= self._cleared(place)

    def _cleared(self, place: Place) -> frozenset[str]:
        names = (place.host, place.name, place.address or "", "localhost" if place.local else "")
        return frozenset[str]().union(*(self.clearance.get(name, frozenset()) for name in names))

    def unpickles(self, place: Place) -> bool:
        """Whether what comes from there is unpickled."""
        return place.local or any(_is_at(place, where) for where in self.unpickle)

    def decide(self, place: Place, weakest: str, marks: Marks, labels: frozenset[str]) -> Decision:
        """How a task goes there: `weakest` is what the policy of the links makes of it, `privacy` or `integrity`."""
        if host := self._insecure(place):
            return Decision(True, f"{host} is an insecure host")
        if marks.code:
            return Decision(True, "the code is sensitive")
        if labels:
            return Decision(True, f"the data is sensitive: {', '.join(sorted(labels))}")
        if weakest == "privacy":
            return Decision(True, "the policy seals what goes there")
        return Decision(False, "the policy trusts the network between: authenticated, not encrypted")


def _is_at(place: Place, where: str) -> bool:
    """Whether a place is meant by a host's name, an address or a network."""
    if where in (place.host, place.name, place.address):
        return True
    try:
        network = ipaddress.ip_network(where)
    except ValueError:
        return False
    return place.address is not None and ipaddress.ip_address(place.address) in network
