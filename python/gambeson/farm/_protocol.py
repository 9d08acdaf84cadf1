"""What a manager and its workers say to each other, over links: the kinds of messages, and the words in them.

    manager                                              worker
      |  <-------------------------------- HELLO: who it is, and a startpoint to it
      |  STAGE: name, version, hash, signature; the code ---->
      |  FORGET: a stage that nothing is asked of any more --->
      |  TASK: an instruction's number; its token ----------->
      |  <----------------------- RESULT: that number; a token
      |  CANCEL: that number; RELEASE ----------------------->
      |  POLICY: the document that links follow from now on; which stages are still used
      |  <------------- AGREED: through with all that came before

Each is a message of buffers with a number and a word (`gambeson._native.NativeOutbox`). Over which of a worker's two
links it goes, sealed or not, is what the policy says of it.
"""

from __future__ import annotations

import enum
from typing import Final

VERSION: Final = 2
CLASS: Final = "task"
"""The class of a farm's links, by which rules of a policy go."""

FRAMING: Final = 1 << 20
"""Bytes that a message may have beside its token."""


class ToWorker(enum.IntEnum):
    """Kinds of what a manager says."""

    STAGE = 1
    TASK = 2
    CANCEL = 3
    RELEASE = 4
    POLICY = 5
    FORGET = 6
    ECHO = 9


class ToManager(enum.IntEnum):
    """Kinds of what a worker says, and of what a manager says to itself."""

    HELLO = 1
    RESULT = 2
    AGREED = 3
    LOST = 16
    WAKE = 17


class Mode(enum.IntEnum):
    """What is done with the items of a token."""

    EACH = 0
    """A result for each."""
    CALL = 1
    """Items are arguments and keyword arguments: a result for each."""
    FOLD = 2
    """One result of all, by a function of two."""
    SCAN = 3
    """The list of what such a function makes of the items up to each, as one result."""
    SHIFT = 4
    """Items are pairs of a value and a list: the list of what such a function makes of the value and each element."""
    TEST = 5
    """Whether the function says yes of the one item; nothing comes back but that."""


# A task's word: stage 20 bits, mode 4 bits, and these.
STAGE_BITS: Final = 20
STAGE_MASK: Final = (1 << STAGE_BITS) - 1
MODE_MASK: Final = 15
PLAIN: Final = 1 << 24
"""The token is in the plain form, as a worker wants it that was pinned to code."""
SEAL: Final = 1 << 25
"""The result goes over the sealed link."""
ONLY: Final = 1 << 26
"""The last buffer says which items it is about: numbers of 4 bytes, little-endian."""
PLAIN_RESULT: Final = 1 << 27
"""The result has to be in the plain form: this worker's are not unpickled."""

# A result's word: these, and above them the microseconds that it took.
SOME_FAILED: Final = 1
"""The first buffer says which items failed, and how."""
NOT_LOADED: Final = 2
"""The stage cannot be loaded: the first buffer says why."""
YES: Final = 4
TIME_SHIFT: Final = 4
TIME_MAX: Final = (1 << 28) - 1


def task_word(stage: int, mode: Mode, flags: int) -> int:
    """A task's word."""
    return stage | mode << STAGE_BITS | flags


def result_word(flags: int, seconds: float) -> int:
    """A result's word."""
    return flags | min(TIME_MAX, int(seconds * 1e6)) << TIME_SHIFT
