"""Who starts processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike, fsdecode, fspath
from typing import TYPE_CHECKING

from gambeson import _native
from gambeson.launch._child import Child
from gambeson.launch._open import OPEN
from gambeson.launch._processes import Processes
from gambeson.link import Capability, Domain, Endpoint
from gambeson.link._closing import Closing

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Creator(Closing):
    """A program that starts processes.

    A context manager, too: it closes at the end, and its domain with it.
    """

    def __init__(
        self,
        *,
        folder: str | PathLike[str] | None = None,
        listen: Iterable[str] = (),
        child: Child | None = None,
    ) -> None:
        """As who this is, whose identity is in `folder`, by default `~/.config/gambeson`. Under `gambeson run` the
        processes belong to its job, otherwise to a new one. The domain that they connect to listens at these addresses;
        without any, at the one of this host that the site's authority is reached from.

        A process that has a creator itself gives its `child`: what it starts belongs to the same job, and connects to
        its domain.

        Raises `Refused` and `Lost` if there is no identity, and `ValueError` for what is no address.
        """
        native = None if child is None else child._native
        self._native = _native.NativeCreator(None if folder is None else fspath(folder), list(listen), native)
        self.domain = Domain._of(self._native.domain()) if child is None else child.domain
        """The domain that the processes connect to."""
        self._child = child
        OPEN.add(self)

    def start_process(
        self,
        hosts: str | Iterable[str],
        argv: Sequence[str | bytes | PathLike[str]],
        *,
        count: int = 1,
        executable: str | bytes | PathLike[str] | None = None,
        directory: str | bytes | PathLike[str] = "",
        environment: Mapping[str, str] | None = None,
        account: str = "",
        input: bool = False,
        terminal: tuple[int, int] | None = None,
        context: Buffer = b"",
        creator: Endpoint | Capability | None = None,
        output: Callable[[int, bool, bytes], object] | None = None,
    ) -> Processes:
        """Has processes started, all at once, and does not wait for that: split-phase.

        There are `count` on each of the `hosts`: `NAME`, or `NAME=ADDRESS:PORT` where its daemon listens elsewhere.
        Each runs `executable`, or what `argv` begins with, in `directory` or else the home of `account`, which is the
        one called as who starts them unless another is named. It finds the account's own variables and `environment`,
        and nothing else of this program's. `context` is what it finds as `Child.context`, and `creator` where its
        initial link leads.

        With `input` they have a standard input (`Process.write`), with `terminal` a terminal of so many rows and
        columns. `output` is called with a process's number, whether it is its standard error, and what it wrote there,
        on a thread of its own; without it, that is written where this program writes.

        Raises `Lost` and `ValueError`. What happens at a host shows with its processes.
        """
        places = [hosts] if isinstance(hosts, str) else list(hosts)
        words = [fsdecode(word) for word in argv]
        if count < 1 or not places or not words:
            raise ValueError("at least one process, on one host, with one word in argv")
        capability = creator.startpoint() if isinstance(creator, Endpoint) else creator
        native = self._native.start_process(
            [place for place in places for _ in range(count)],
            words[0] if executable is None else fsdecode(executable),
            words,
            fsdecode(directory),
            list((environment or {}).items()),
            account,
            input,
            terminal,
            context,
            None if capability is None else capability._native,
            output,
        )
        return Processes(native, [place.partition("=")[0] for place in places for _ in range(count)])

    def close(self) -> None:
        """Closes its domain. The processes go on until their `Processes` are closed."""
        self._native.close()
        if self._child is None:
            self.domain.close()
