"""What goes wrong with links, with the sentences of Rust."""

from __future__ import annotations


class Error(Exception):
    """Why something with a link did not work."""


class IdentityUnusable(Error, ValueError):
    """An own certificate, key, list of authorities or site directory is not usable."""


class Refused(Error, PermissionError):
    """The other end is not who it should be, or does not accept us."""


class Garbled(Error):
    """The bytes are not what a domain sends: altered on the way, or of another version."""


class StartpointRefused(Error, PermissionError):
    """A startpoint does not allow it."""


class TransformRefused(Error, ValueError):
    """A transform module is missing, or does not take a message."""


class PolicyUnusable(Error, ValueError):
    """A policy is not usable."""


class MessageUnfit(Error, ValueError):
    """It is not the message that it was to be."""


class HandlerRefused(Error):
    """The handler at the endpoint says no.

    A handler that raises it says no with its text alone; any other exception goes out with its type before the text.
    """


class TimedOut(Error, TimeoutError):
    """Nothing came in time."""


class Lost(Error, ConnectionError):
    """The other end is gone."""


class SystemRefused(Error, OSError):
    """The operating system says no."""
