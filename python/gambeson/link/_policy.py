"""How links are protected, and what a domain refused."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gambeson import _native
from gambeson.link._startpoint import Protection


class Policy:
    """How links are protected, by where they lead and by their class: what a `gambeson.toml` says.

    It does not change.
    """

    def __init__(self, native: _native.NativePolicy) -> None:
        """`parse`, `read` and `uniform` make one."""
        self._native = native

    @staticmethod
    def parse(document: str, origin: str = "the policy") -> Policy:
        """The policy of this document, which stands alone, without a floor.

        `document` is the text of a `gambeson.toml`; sentences about it name `origin`. Raises `PolicyUnusable`.
        """
        return Policy(_native.NativePolicy.parse(document, origin))

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Policy:
        """Reads a policy from a `gambeson.toml` that nobody but its owner and root can write.

        Raises `PolicyUnusable`.
        """
        return Policy(_native.NativePolicy.read(os.fspath(path)))

    @staticmethod
    def uniform(protection: Protection) -> Policy:
        """The same protection for everything, and nothing else said."""
        return Policy(_native.NativePolicy.uniform(protection.value))


def trusting(networks: Iterable[object], class_name: str) -> str:
    """A policy that seals everything but links of a class between two hosts of one of these networks; those are
    authenticated.
    """
    rules = [
        f'[[rule]]\nbetween = ["{network}", "{network}"]\nclass = "{class_name}"\nprotection = "integrity"\n'
        for network in networks
    ]
    return "\n".join(['protection = "privacy"\n', *rules])


class Refusal(enum.Enum):
    """Why an activation or a request is refused. The numbers go over the wire."""

    MALFORMED = 1
    """The bytes are no activation."""
    REPLAYED = 2
    """The link's number was used before in the session, or is not the opener's to use."""
    UNKNOWN = 3
    """No such endpoint or startpoint, or no more."""
    UNPROVEN = 4
    """The opener lacks the startpoint's secret, or the two ends disagree on something."""
    NOT_HOLDER = 5
    """Bound to another domain's key than the session's."""
    UNVOUCHED = 6
    """Copied by somebody who did not hold it."""
    REVOKED = 7
    """It, or what it was copied from, was revoked."""
    EXPIRED = 8
    """Its time is over."""
    UNPROTECTED = 9
    """The link would be less protected than it must be."""
    USED_UP = 10
    """All its uses are used up."""
    METHOD = 11
    """Not a handler that it may call."""
    MEMORY = 12
    """Not memory that it may reach so."""
    FULL = 13
    """The endpoint keeps as much for this startpoint as it may."""
    ABSENT = 14
    """The memory region is not there, or not any more, or ends before the access does."""
    TOO_LONG = 15
    """A message longer than the endpoint takes."""


@dataclass(frozen=True)
class Refusals:
    """How often a domain refused something since it was opened."""

    connections: int
    """Connections of those who did not prove that they may talk to it, spoke something else or nothing."""
    tampered: int
    """Connections given up, or sessions ended, because of what came over them: somebody on the way altered it."""
    names: int
    """Names that somebody asked for and may not have, or under which nothing is published."""
    startpoints: Mapping[Refusal, int]
    """Startpoints and requests, with the reasons that ever applied."""

    def of(self, reason: Refusal) -> int:
        """How often startpoints or requests were refused for this reason."""
        return self.startpoints.get(reason, 0)
