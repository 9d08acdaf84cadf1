"""What a comm has of links: a pair of sealed ones, and where both ends trust the network between one more, for large
data that nobody labelled.

    ours (it listens)                               theirs (it connected)
    outbox ── DATA ..., CLOSE ── sealed ─> inbox
           ── WATCH, never answered ────> held until they close; so its end says that they have, or that they are gone
    clear outbox ── DATA ... ── authenticated ─> clear inbox: there are messages in the inbox that say how many
    inbox <── sealed ── DATA ..., CLOSE ── outbox

Replies with data come from who was connected to. So that is the one direction in which a link that is not sealed is
worth having.
"""

from __future__ import annotations

from typing import Any

from gambeson import _native, link
from gambeson.dask._place import Place
from gambeson.dask._settings import CLASS

DATA, CLOSE, WATCH, ECHO = 1, 2, 3, 4
MESSAGE_MAX = 1 << 40

_SEALED = link.Caveat.protection(link.Protection.PRIVACY)


class Ends:
    """What a comm has of links; it goes in any thread."""

    def __init__(self, place: Place, *, accepted: bool, clear: bool = False) -> None:
        """The own end, to which others may be given a startpoint; with `clear` one more, for data that is not sealed.

        `accepted` are comms that others opened.
        """
        self.place = place
        self.accepted = accepted
        self.inbox = _native.NativeInbox()
        self.clear_inbox: _native.NativeInbox | None = None
        self._held = _native.NativeInbox()
        inboxes = [(DATA, self.inbox), (CLOSE, self.inbox), (WATCH, self._held)]
        # Whatever policies say: there are graphs, functions and small data in it.
        self._endpoint = place.domain._native.mailbox(inboxes, None, 0, "dask", "privacy", MESSAGE_MAX)
        self._clear_endpoint: _native.NativeEndpoint | None = None
        if clear:
            self.clear_inbox = _native.NativeInbox()
            taken = [(DATA, self.clear_inbox)]
            self._clear_endpoint = place.domain._native.mailbox(taken, ECHO, 0, CLASS, "integrity", MESSAGE_MAX)
        self.outbox: _native.NativeOutbox | None = None
        self.startpoint: link.Startpoint | None = None
        self.clear_outbox: _native.NativeOutbox | None = None
        self._clear_startpoint: link.Startpoint | None = None
        self.rule = "what the opener of a comm sends is sealed"
        """Why what goes out is protected as it is."""
        self._watch: _native.NativeTask | None = None
        self.gone = False
        place.hold()

    def capability(self) -> bytes:
        """What the other end binds. It is a secret."""
        return self._endpoint.startpoint([]).encode()

    def clear_capability(self) -> bytes | None:
        """What the other end may bind beside. It is a secret, too."""
        return None if self._clear_endpoint is None else self._clear_endpoint.startpoint([]).encode()

    def bind(self, capability: bytes, timeout: float) -> None:
        """Opens the link to the other end; it waits."""
        self.startpoint = self.place.domain.startpoint(link.Capability.decode(capability).narrow(_SEALED), timeout)
        self.outbox = _native.NativeOutbox(self.startpoint._native)

    def bind_clear(self, capability: bytes, timeout: float) -> None:
        """Opens a link beside if the policies of both ends have it authenticated and not encrypted; it waits."""
        try:
            startpoint = self.place.domain.startpoint(link.Capability.decode(capability), timeout)
            if startpoint.protection is not link.Protection.INTEGRITY:
                startpoint.close()
                self.rule = "the policy of this end seals it"
                return
            # The other end agrees when it answers.
            startpoint.call(ECHO, b"", timeout)
        except link.StartpointRefused as cause:
            self.rule = f"the policy of the other end seals it: {cause}"
            return
        self._clear_startpoint = startpoint
        self.clear_outbox = _native.NativeOutbox(startpoint._native)
        self.rule = "the policies of both ends trust the network between"

    def watch(self, over: Any) -> None:
        """Has `over` called, in another thread, with why the other end has gone, once it has."""
        assert self.startpoint is not None
        self._watch = self.startpoint._native.submit(WATCH, b"", lambda _, error: over(error))

    def waiting(self) -> bool:
        """Whether long messages have not gone yet."""
        return any(box is not None and box.waiting() for box in (self.outbox, self.clear_outbox))

    def close(self) -> None:
        """Gives all of it back. What was posted still goes."""
        self._watch = None
        for box in (self._held, self.inbox, self.clear_inbox, self.outbox, self.clear_outbox):
            if box is not None:
                box.close()
        for startpoint in (self.startpoint, self._clear_startpoint):
            if startpoint is not None:
                startpoint.close()
        self.place.release(*(one for one in (self._endpoint, self._clear_endpoint) if one is not None))
