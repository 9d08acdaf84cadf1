"""Who a domain is, whom it accepts, and who is at the other end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from gambeson import _native

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Identity:
    """A domain's own key, with the certificate that shows it.

    A domain takes it, and another one cannot have it, too.
    """

    def __init__(self, native: _native.NativeIdentity) -> None:
        """`generate` and `from_pem` make one."""
        self._native = native

    @staticmethod
    def generate() -> Identity:
        """A fresh Ed25519 key in a certificate of its own: what ranks of a job use, and whoever is known by a pinned
        key.

        Raises `IdentityUnusable`.
        """
        return Identity(_native.NativeIdentity.generate())

    @staticmethod
    def from_pem(chain: Buffer, key: Buffer) -> Identity:
        """A certificate with its chain and its private key, both in PEM (RFC 7468). In the place of a key that is in a
        token stands a line with its PKCS #11 URI (RFC 7512): the token is opened, by the module that the URI names.

        Raises `IdentityUnusable`.
        """
        return Identity(_native.NativeIdentity.from_pem(chain, key))

    @property
    def key_hash(self) -> bytes:
        """By what others know this domain.

        32 bytes, of which `.hex()` makes a text and `bytes.fromhex` bytes again.
        """
        return bytes(self._native.key_hash())

    def __reduce__(self) -> NoReturn:
        """A private key goes nowhere by accident."""
        raise TypeError("an identity holds a private key and is not pickled; give each process its own")


class Trust:
    """Whom a domain talks to. Without anything it talks to nobody.

    It does not change; each of its methods makes another one.
    """

    def __init__(self, native: _native.NativeTrust | None = None) -> None:
        """A trust in nobody."""
        self._native = native if native is not None else _native.NativeTrust()

    def job(self, job_id: Buffer, secret: Buffer, policy_hash: Buffer) -> Trust:
        """Accepts who proves that it has this job's secret; its roles are `rank`. Both ends need the job.

        `job_id` has 16 bytes and is no secret, `secret` and `policy_hash` have 32.
        """
        return Trust(self._native.job(job_id, secret, policy_hash))

    def pinned(self, key: Buffer, name: str, roles: Iterable[str] = ()) -> Trust:
        """Accepts the owner of this public key, under a name and with roles.

        `key` is an `Identity.key_hash`.
        """
        return Trust(self._native.pinned(key, name, list(roles)))

    def authorities(self, pem: Buffer) -> Trust:
        """Accepts certificates that these authorities signed, for servers and for clients. The roles are what its URIs
        of the form `gambeson:role:NAME` name, and `dns:NAME` for each of its DNS names, in small letters. The name is
        the certificate's first DNS name, or else the last of its roles.

        Raises `IdentityUnusable`.
        """
        return Trust(self._native.authorities(pem))


@dataclass(frozen=True)
class Peer:
    """Who is at the other end of a session, proved."""

    key: bytes
    """Its public key."""
    name: str
    """What it is known by: `rank` of the job, the pinned key's name, or the certificate's."""
    roles: tuple[str, ...]
    """What it may be asked to be."""
    host: str
    """The host that it says it is on; vouched for by whoever vouches for it."""
    address: str | None
    """The address that it says its host has, if it does: what policy rules about subnets go by."""
