"""Domains and endpoints."""

from __future__ import annotations

import atexit
import enum
import weakref
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Self

from gambeson import _native
from gambeson.link._closing import Closing
from gambeson.link._group import Group, OwnOperation
from gambeson.link._identity import Identity, Trust
from gambeson.link._policy import Policy, Refusal, Refusals
from gambeson.link._region import Region
from gambeson.link._request import Handler, serving
from gambeson.link._startpoint import Capability, Caveat, Protection, Startpoint, Transport
from gambeson.link._transform import Transform, module

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Progress(enum.Enum):
    """Who moves bytes while the program computes (libfabric's FI_PROGRESS_MANUAL and FI_PROGRESS_AUTO)."""

    AUTO = "auto"
    """A thread of the domain's own."""
    MANUAL = "manual"
    """The program, whenever it calls or waits: the shortest way, and nothing happens in between."""


class Domain(Closing):
    """A process's place among links.

    A context manager, too: it closes at the end.
    """

    def __init__(
        self,
        identity: Identity,
        trust: Trust,
        *,
        listen: Iterable[str] = (),
        fabric: Iterable[tuple[str, str | None]] = (),
        relays: Iterable[str] = (),
        host: str | None = None,
        address: str | None = None,
        rank: int | None = None,
        site: bool = False,
        directory: tuple[str | PathLike[str], str | PathLike[str]] | None = None,
        shm: bool = True,
        progress: Progress = Progress.AUTO,
        policy: Policy | None = None,
        weakest: Protection | None = None,
        transforms: Iterable[Transform] = (),
        patience: float = 60.0,
        silence: float = 20.0,
    ) -> None:
        """Opens a domain.

        `listen` has addresses such as `10.0.0.1:4000`, of which port 0 takes a free one; without any, the domain only
        connects. `fabric` has providers of libfabric over which others may come, too, each with the interface's address
        or name, or `None` for its first. At `relays`, each `HOST:PORT`, it waits for others; links through one are
        sealed, whatever the policy says. `host` is this host's name and `address` its address, for people and policies,
        and `rank` the rank in a job. With `shm` processes of this host may come over shared memory, if it listens at
        all. `policy` says how links are protected; everything is sealed without one. `weakest` is short for the policy
        that has the same protection for all. With `site` it goes by the directory of the site that this host is of, and
        by `directory` if that has the files of another and of the key that signed it. `transforms` has modules of the
        program's own, which endpoints can name. A session that lost its connection waits `patience` seconds for another
        one; after `silence` seconds a connection is given up over which a peer says nothing that owes an answer.

        Raises `IdentityUnusable`, also for a directory that does not hold, `SystemRefused`, and `ValueError` for what
        is no address.
        """
        if weakest is not None:
            if policy is not None:
                raise ValueError("weakest is short for a policy; give one of them")
            policy = Policy.uniform(weakest)
        self._open(
            {
                "identity": identity._native,
                "trust": trust._native,
                "listen": list(listen),
                "fabric": list(fabric),
                "relays": list(relays),
                "host": host,
                "address": address,
                "rank": rank,
                "site": site,
                "directory": None if directory is None else (fspath(directory[0]), fspath(directory[1])),
                "shm": shm,
                "manual": progress is Progress.MANUAL,
                "policy": None if policy is None else policy._native,
                "transforms": [module(own) for own in transforms],
                "patience": patience,
                "silence": silence,
            }
        )

    @classmethod
    def from_job(
        cls,
        *,
        listen: Iterable[str] = (),
        fabric: Iterable[tuple[str, str | None]] = (),
        relays: Iterable[str] = (),
        address: str | None = None,
        shm: bool = True,
        progress: Progress = Progress.AUTO,
        transforms: Iterable[Transform] = (),
        patience: float = 60.0,
        silence: float = 20.0,
    ) -> Self:
        """A domain of the job that this process belongs to: a fresh key, the job's secret to prove, its rank and host,
        and the policy of the job, and the directory of the site that the job was started at. It listens nowhere yet.

        The arguments are those of `Domain`. Raises `IdentityUnusable` in a process of no job, `SystemRefused`, and
        `ValueError` for what is no address.
        """
        domain = cls.__new__(cls)
        domain._open(
            {
                "identity": None,
                "trust": None,
                "listen": list(listen),
                "fabric": list(fabric),
                "relays": list(relays),
                "host": None,
                "address": address,
                "rank": None,
                "site": False,
                "directory": None,
                "shm": shm,
                "manual": progress is Progress.MANUAL,
                "policy": None,
                "transforms": [module(own) for own in transforms],
                "patience": patience,
                "silence": silence,
            }
        )
        return domain

    def _open(self, options: _native.Options) -> None:
        self._take(_native.NativeDomain(options))

    @classmethod
    def _of(cls, native: _native.NativeDomain) -> Self:
        domain = cls.__new__(cls)
        domain._take(native)
        return domain

    def _take(self, native: _native.NativeDomain) -> None:
        self._native = native
        self._endpoints: set[Endpoint] = set()
        _open.add(self)

    @property
    def key_hash(self) -> bytes:
        """By what others know this domain."""
        return bytes(self._native.key_hash())

    @property
    def listening(self) -> list[str]:
        """Where it listens for other hosts."""
        return self._native.listening()

    def endpoint(
        self,
        handlers: Mapping[int, Handler],
        *,
        class_name: str = "data",
        protection: Protection = Protection.NONE,
        message_max: int = 64 << 20,
        transforms: Iterable[str] = (),
        forwards: bool | Iterable[OwnOperation] = False,
    ) -> Endpoint:
        """Makes an endpoint.

        Handlers run in threads of the domain's. Each gets a `Request`; the bytes that it returns are the answer, and
        what it yields, or each of an iterator that it returns, is one of a stream of answers. What it raises is said to
        who asked. `class_name` is the class of the endpoint's links, by which policies go, `protection` how they are
        protected at the least, whatever the policies of both ends say, and `message_max` the longest message that it
        takes, in bytes. `transforms` names modules that requests and answers go through in front of the protection;
        every domain has `zstd`. With `forwards`, which may be operations of the program's own, the endpoint passes
        messages of groups on, and whoever may call that handler has this domain connect where the startpoints lead that
        he hands it.

        Raises `StartpointRefused`, `TransformRefused`.
        """
        serve = [(number, serving(handler)) for number, handler in handlers.items()]
        operations = () if isinstance(forwards, bool) else forwards
        own = None if forwards is False else [(one.name, one.combine) for one in operations]
        native = self._native.endpoint(serve, class_name, protection.value, message_max, list(transforms), own)
        return Endpoint(native, self._endpoints)

    def startpoint(
        self, capability: Capability | Buffer, timeout: float | None = 10.0, *, transport: Transport | None = None
    ) -> Startpoint:
        """Binds a startpoint that came from elsewhere: connects to its owner, unless there is a session with it, and
        opens a link.

        Bytes of a startpoint do as well. `timeout` is in seconds. With a `transport` the link goes over that, whatever
        the rule says; links to one owner share a session if they wish for the same. In asyncio:
        `await asyncio.to_thread(...)`.

        Raises `Refused`, `Lost`, `TimedOut`, `StartpointRefused`.
        """
        if not isinstance(capability, Capability):
            capability = Capability.decode(capability)
        over = None if transport is None else transport.value
        return Startpoint(self._native.startpoint(capability._native, over, timeout), self)

    def attach(
        self,
        address: str,
        name: str,
        *,
        key: Buffer | None = None,
        role: str | None = None,
        timeout: float | None = 10.0,
    ) -> Startpoint:
        """Attaches to a program that runs: asks at an address, `10.0.0.1:4000` or a host's name and a port, for the
        endpoint that is published there under a name (`Endpoint.publish`), and binds a startpoint to it. Both prove who
        they are, and who is there must be who is `expected`.

        Expected is the owner of `key`, its domain's `key_hash`, or whoever has `role`: exactly one of them is given.
        `timeout` is in seconds.

        Raises `Refused`, `Lost`, `TimedOut`, `SystemRefused`, `StartpointRefused` if nothing is published so for this
        domain, and `ValueError`.
        """
        if (key is None) == (role is None):
            what = "say who is expected there: the owner of a key, or somebody with a role, one of them"
            raise ValueError(what)
        return Startpoint(self._native.attach(address, key, role or "", name, timeout), self)

    def attach_via(self, relay: str, name: str, *, key: Buffer, timeout: float | None = 10.0) -> Startpoint:
        """As `Domain.attach`, to the owner of a key, who waits at a relay, `HOST:PORT` (`Config::relays`). The links
        are sealed, whatever policies say.

        `timeout` is in seconds. Raises as that does.
        """
        return Startpoint(self._native.attach_via(relay, key, name, timeout), self)

    def attach_host(self, host: str, name: str, timeout: float | None = 10.0) -> Startpoint:
        """As `Domain.attach`, to the program that the site directory has on a host: it says where that listens, and who
        has to be there.

        `timeout` is in seconds. Raises as that does.
        """
        return Startpoint(self._native.attach_host(host, name, timeout), self)

    def group(self, members: Iterable[Capability], *, flat: bool = False) -> Group:
        """A group of the endpoints that these startpoints lead to. Nothing is connected to until it is called.

        With `flat` all of them are called by this domain itself: nobody passes anything on.
        """
        return Group(self._native.group([member._native for member in members], flat), self)

    def copy_for(self, capability: Capability, holder: Buffer) -> Capability:
        """A copy of a startpoint for another domain, and for it alone: stolen bytes of it open nothing. It descends
        from this one: what narrows or ends this one narrows or ends the copy.

        `holder` is the other domain's `key_hash`. Raises `StartpointRefused`, `IdentityUnusable`.
        """
        return Capability(self._native.copy_for(capability._native, holder))

    def refusals(self) -> Refusals:
        """What it refused so far, by reason."""
        connections, tampered, names, startpoints = self._native.refusals()
        return Refusals(connections, tampered, names, {Refusal(reason): count for reason, count in startpoints})

    def pin(self, key: Buffer, name: str, roles: Iterable[str] = ()) -> None:
        """Accepts the owner of one more public key from now on, as `Trust.pinned` does from the beginning."""
        self._native.pin(key, name, list(roles))

    def unpin(self, key: Buffer) -> bool:
        """Accepts the owner of a pinned key no longer, and ends the sessions with it. Whether it was pinned."""
        return self._native.unpin(key)

    def set_policy(self, policy: Policy) -> None:
        """Follows another policy from now on. Links that are weaker than it allows end, and say why; the others stay
        as they are. The domains at the other ends keep theirs.
        """
        self._native.set_policy(policy._native)

    def progress(self, wait: float = 0.0) -> bool:
        """Does what there is to do: takes what has come, runs handlers, sends what waits. With `Progress.MANUAL`
        nothing else does. Waits for it at most so long; whether there was anything.

        `wait` is in seconds.
        """
        return self._native.progress(wait)

    def close(self) -> None:
        """Ends the domain's sessions, and its thread. What is under way raises `Lost`."""
        self._native.close()
        self._endpoints.clear()


# Threads of domains must not call into a Python that goes down.
_open: weakref.WeakSet[Domain] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for domain in list(_open):
        domain.close()
    _native.leave()


class Endpoint:
    """Handlers that others can be given startpoints to. It stays as long as its domain, or until it is dropped.

    Here its domain keeps it: it is there until `close`.
    """

    def __init__(self, native: _native.NativeEndpoint, kept: set[Endpoint]) -> None:
        """`Domain.endpoint` makes one."""
        self._native = native
        self._kept = kept
        kept.add(self)

    def startpoint(self, *caveats: Caveat) -> Capability:
        """A startpoint to give away, for whoever holds it, narrowed so.

        Raises `StartpointRefused`.
        """
        return Capability(self._native.startpoint([caveat.parts for caveat in caveats]))

    def region(self, memory: Buffer | int) -> Region:
        """Makes memory that startpoints of this endpoint reach if they have a `Caveat.memory` with a window onto it. It
        is the library's as long as the `Region` or a clone of it is held.

        `memory` is what it begins with, which is copied, or how many bytes it has, zeroes then.
        """
        if isinstance(memory, int):
            return Region(self._native.region(None, memory))
        return Region(self._native.region(memory, 0))

    def publish(self, name: str, roles: Iterable[str], *caveats: Caveat) -> None:
        """Puts this endpoint under a name, for who attaches to this domain (`Domain.attach`) and proves to have one of
        the roles: `rank` for processes of the job, else those of pinned keys and certificates. Each gets a startpoint
        narrowed so, bound to its own key; uses are counted over all of them.

        Raises `StartpointRefused`.
        """
        if isinstance(roles, str):
            what = f"roles are a list, as [{roles!r}]"
            raise TypeError(what)
        self._native.publish(name, list(roles), [caveat.parts for caveat in caveats])

    def withdraw(self, name: str) -> None:
        """Takes a name away from this endpoint: all that was attached by it has ended.

        Raises `StartpointRefused`.
        """
        self._native.withdraw(name)

    def revoke(self, capability: Capability) -> None:
        """Ends a startpoint of this endpoint and all that descend from it.

        Raises `StartpointRefused`.
        """
        self._native.revoke(capability._native)

    def close(self) -> None:
        """Takes no further requests. Its startpoints are refused from now on."""
        self._native.close()
        self._kept.discard(self)
