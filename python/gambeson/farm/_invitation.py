"""What a worker is told before it connects to its manager."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Invitation:
    """Where to connect, who will be there, and what both hold to."""

    manager: str
    """The hash of the manager's public key, in hexadecimal digits."""
    startpoint: str
    """To the manager, for this worker alone; in hexadecimal digits."""
    job: str
    policy: str
    """The document of the policy that both ends follow."""
    shm: bool
    largest: int
    """The longest token in bytes, in both directions."""
    towards: str
    """An address of the manager, by which a worker finds its own."""

    def encode(self) -> str:
        """As it goes over a pipe: one line."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def decode(cls, line: str) -> Invitation:
        """What a line says."""
        return cls(**json.loads(line))


def address_towards(address: str) -> str:
    """The address that this host has towards another one. Nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return str(probe.getsockname()[0])
