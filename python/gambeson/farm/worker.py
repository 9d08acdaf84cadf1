"""A worker: a macro-data-flow interpreter that computes instructions for a manager (secure-muskel paper, section 2).

`python -m gambeson.farm` is what managers start; it reads its invitation from standard input. `gambeson worker --farm
FILE` joins a farm by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import functools
import json
import os
import platform
import signal
import socket
import sys
import threading
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gambeson import _native
from gambeson.farm import _plain, _protocol
from gambeson.farm._code import StagedCode
from gambeson.farm._errors import FarmError, StageError
from gambeson.farm._invitation import Invitation, address_towards
from gambeson.farm._joining import join
from gambeson.farm._protocol import Mode, ToManager, ToWorker
from gambeson.farm._run import Cancelled, Described, Failures, Functions, described, run
from gambeson.farm._token import Parts, dump, load
from gambeson.link import Answers, Capability, Caveat, Domain, Error, Identity, Lost, Policy, Protection, Trust

if TYPE_CHECKING:
    from typing_extensions import Buffer


UNAVAILABLE = 69
"""Exit status: there is no farm to compute for (sysexits.h)."""


class Interpreter:
    """Runs instructions, one after the other, until it is released."""

    def __init__(self, invitation: Invitation, identity: Identity, pinned: frozenset[str] | None = None) -> None:
        self._manager = bytes.fromhex(invitation.manager)
        self._job = bytes.fromhex(invitation.job)
        self._pinned = pinned
        self._plain = False
        """Whether the result of the task at hand has to be in the plain form."""
        self._largest = invitation.largest
        self._stages: dict[int, Functions | StageError] = {}
        self._early: dict[int, list[_native.Taken]] = {}
        self._tasks = _native.NativeInbox()
        self._orders = _native.NativeInbox()
        self._order = threading.Lock()
        self._cancelled: set[int] = set()
        self._running = -1
        self._released = False
        self._thread = threading.get_ident()
        self._domain = Domain(
            identity,
            Trust().pinned(self._manager, "the manager", ["manager"]),
            policy=Policy.parse(invitation.policy, "the manager's policy"),
            address=address_towards(invitation.towards),
            host=socket.gethostname(),
            shm=invitation.shm,
            patience=20.0,
        )
        inboxes = [
            (int(ToWorker.STAGE), self._tasks),
            (int(ToWorker.TASK), self._tasks),
            (int(ToWorker.POLICY), self._tasks),
            (int(ToWorker.FORGET), self._tasks),
            (int(ToWorker.CANCEL), self._orders),
            (int(ToWorker.RELEASE), self._orders),
        ]
        self._endpoint = self._domain._native.mailbox(
            inboxes, int(ToWorker.ECHO), 0, _protocol.CLASS, "integrity", invitation.largest + _protocol.FRAMING
        )
        self._connect(invitation)

    def _connect(self, invitation: Invitation) -> None:
        """Binds the links to the manager, and says who is here."""
        self._to_manager = Capability.decode(bytes.fromhex(invitation.startpoint))
        self._link = self._domain.startpoint(self._to_manager.narrow(Caveat.protection(Protection.PRIVACY)))
        self._sealed = self._clear = _native.NativeOutbox(self._link._native)
        self._open_clear()
        hello = {
            "version": _protocol.VERSION,
            "python": platform.python_version(),
            "gambeson": _native.VERSION,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "cores": len(os.sched_getaffinity(0)),
            # Whoever runs pinned code alone unpickles nothing, which would run what the sender wants.
            "plain": self._pinned is not None,
        }
        here = self._endpoint.startpoint([])
        self._sealed.post(ToManager.HELLO, 0, 0, [json.dumps(hello).encode(), here.encode()])

    def _open_clear(self) -> None:
        """Opens the link for what need not be sealed, if the policies of both ends leave one that is weaker."""
        try:
            clear = self._domain.startpoint(self._to_manager)
        except Error:
            # The manager has another policy by now, and will say so.
            return
        if clear.protection is not Protection.PRIVACY:
            self._clear = _native.NativeOutbox(clear._native)
        clear.close()

    def _follow(self, document: str, stages: frozenset[int]) -> None:
        """The manager has another policy, and uses these stages."""
        # What waits for its code waits for what was lost with a link. What was to be forgotten may have been lost, too.
        self._early.clear()
        for stage in self._stages.keys() - stages:
            del self._stages[stage]
        if self._clear is not self._sealed:
            self._clear.close()
            self._clear = self._sealed
        self._domain.set_policy(Policy.parse(document, "the manager's policy"))
        self._open_clear()
        self._sealed.post(ToManager.AGREED, 0, 0, [b""])

    def _post(self, word: int, number: int, said: int, parts: Parts) -> None:
        """Sends what came of a task, which had that word."""
        if not word & _protocol.SEAL and self._clear is not self._sealed:
            # A link that the manager has ended is none; what is sealed may go anyway.
            with contextlib.suppress(Error):
                return self._clear.post(ToManager.RESULT, number, said, parts)
        return self._sealed.post(ToManager.RESULT, number, said, parts)

    def serve(self) -> None:
        """Computes until the manager releases this worker, or is gone."""
        threading.Thread(target=self._heed, name="orders", daemon=True).start()
        while True:
            try:
                for message in self._tasks.take(16, None):
                    self._take(message)
            except Lost:
                # The manager has released this worker, or is gone.
                return

    def _take(self, message: _native.Taken) -> None:
        _, kind, number, word, parts = message
        if kind == ToWorker.STAGE:
            self._load(number, parts)
        elif kind == ToWorker.TASK:
            stage = word & _protocol.STAGE_MASK
            if stage in self._stages:
                self._compute(number, word, parts)
            else:
                # Its code comes over the other link.
                self._early.setdefault(stage, []).append(message)
        elif kind == ToWorker.POLICY:
            self._follow(bytes(parts[0]).decode(), frozenset(array("I", bytes(parts[1]))))
        elif kind == ToWorker.FORGET:
            self._stages.pop(number, None)
            self._early.pop(number, None)

    def _load(self, stage: int, parts: list[bytes | memoryview]) -> None:
        if stage in self._stages:
            # It comes again if the manager was not sure that it had arrived.
            return
        try:
            code = StagedCode.decode(parts)
            code.check(self._manager, self._job, self._pinned)
            self._stages[stage] = code.load()
        except StageError as error:
            self._stages[stage] = error
        for message in self._early.pop(stage, []):
            self._take(message)

    def _compute(self, number: int, word: int, parts: list[Any]) -> None:
        functions = self._stages[word & _protocol.STAGE_MASK]
        self._plain = bool(word & _protocol.PLAIN_RESULT)
        if isinstance(functions, StageError):
            self._post(word, number, _protocol.NOT_LOADED, [str(functions).encode()])
            return
        mode = Mode(word >> _protocol.STAGE_BITS & _protocol.MODE_MASK)
        only = array("I", bytes(parts.pop())) if word & _protocol.ONLY else None
        try:
            items = self._loaded(word, parts)
        except Exception as error:
            text = f"the data of a task cannot be loaded: {type(error).__name__}: {error}"
            if isinstance(error, ImportError):
                text += "; install that on the worker, or define it in the program itself"
            self._post(word, number, _protocol.NOT_LOADED, [text.encode()])
            return
        began = time.perf_counter()
        try:
            try:
                self._begin(number)
                results, failures = run(mode, functions, items, only)
            finally:
                self._end()
        except Cancelled:
            # Perhaps in the midst of the end.
            self._end()
            self._post(word, number, 0, [b""])
            return
        took = time.perf_counter() - began
        if mode is Mode.TEST and not failures:
            self._post(word, number, _protocol.result_word(_protocol.YES if results else 0, took), [b""])
            return
        answer, flags = self._answer(results, failures)
        try:
            self._post(word, number, _protocol.result_word(flags, took), answer)
        except Error as error:
            text = f"the result cannot be sent: {error}"
            answer, flags = self._answer([None] * len(results), _all_failed(len(results), text))
            self._post(word, number, _protocol.result_word(flags, took), answer)

    def _begin(self, number: int) -> None:
        """From now on until `_end` the task can be cancelled.

        Raises `Cancelled` if it was already.
        """
        with self._order:
            if number in self._cancelled:
                self._cancelled.remove(number)
                raise Cancelled
            self._running = number

    def _end(self) -> None:
        """From now on it cannot: what was still to be raised is not."""
        with self._order:
            if self._running in self._cancelled:
                self._cancelled.remove(self._running)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), None)
            self._running = -1

    def _loaded(self, word: int, parts: list[Any]) -> list[Any]:
        if self._pinned is None:
            items: list[Any] = load(parts)
            return items
        if not word & _protocol.PLAIN:
            raise StageError("this worker was pinned to code, and takes plain data alone")
        plain: list[Any] = _plain.load(parts)
        return plain

    def _answer(self, results: list[Any], failures: Failures) -> tuple[Parts, int]:
        """What is sent of results. Those that cannot be are failures."""
        parts = self._dumped(results, failures)
        size = sum(memoryview(part).nbytes for part in parts)
        if size > self._largest:
            text = (
                f"the result has {size} bytes, and {self._largest} are the most that a token may have; return it in "
                "parts, leave it in a file, or let the manager take more (largest=...)"
            )
            failures = _all_failed(len(results), text)
            parts = self._dumped([None] * len(results), failures)
        if not failures:
            return parts, 0
        if self._plain:
            failures = {at: _as_text(failure) for at, failure in failures.items()}
        listed: Buffer = _plain.dump({at: list(failure) for at, failure in failures.items()})[0]
        return [listed, *parts], _protocol.SOME_FAILED

    def _dumped(self, results: list[Any], failures: Failures) -> Parts:
        dumped = _plain.dump if self._plain else dump
        try:
            return dumped(results)
        except Exception as error:
            whole = error
        # One by one: who is to blame?
        for at, result in enumerate(results):
            try:
                dumped(result)
            except Exception as error:
                if at not in failures:
                    failures[at] = _unsendable(error, result, self._plain)
                results[at] = None
        if not failures:
            raise whole
        return dumped(results)

    def _heed(self) -> None:
        """Takes orders while tasks run."""
        while True:
            try:
                for _, kind, number, _, _ in self._orders.take(16, None):
                    if kind == ToWorker.RELEASE:
                        self._leave()
                    with self._order:
                        self._cancelled.add(number)
                        if number == self._running:
                            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                                ctypes.c_ulong(self._thread), ctypes.py_object(Cancelled)
                            )
            except Error:
                return

    def watch(self) -> None:
        """Ends this process when the link to the manager is over."""
        while True:
            time.sleep(1.0)
            try:
                self._link.carrier  # noqa: B018
            except Error as error:
                if self._released:
                    return
                print(f"gambeson worker: {error}; this worker ends", file=sys.stderr)
                os._exit(1)

    def _leave(self) -> None:
        # A task that runs is nobody's any more, and would not let the interpreter end.
        self._released = True
        self._domain.close()
        os._exit(0)


def _all_failed(count: int, text: str) -> Failures:
    return dict.fromkeys(range(count), (text, text, None))


def _as_text(failure: Described) -> Described:
    return failure[0], failure[1], None


def _unsendable(error: Exception, result: object, plain: bool) -> tuple[str, str, bytes | None]:
    if plain:
        text = (
            f"the result cannot be sent: {error}, and this worker is not trusted to send more. Return data, arrays or "
            "Arrow tables, or name its host in Security(unpickle=[...]) if what it sends may run as code"
        )
        return text, text, None
    what, text, _ = described(error)
    sentence = f"the result, of type {type(result).__qualname__}, cannot be pickled: {what}"
    return sentence, f"{text}\n{sentence}", None


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="gambeson worker",
        description="Computes for the manager of a farm: the one whose file it is given, or else the one that started "
        "it, and that says the rest over standard input.",
    )
    parser.add_argument("--farm", type=Path, metavar="FILE", help="join the farm whose manager wrote this file")
    parser.add_argument(
        "--patience", type=float, default=60.0, metavar="SECONDS", help="how long that may not be there yet (60)"
    )
    parser.add_argument("--pinned", type=Path, help="run only code whose SHA-256 stands in this file, one a line")
    options = parser.parse_args(arguments)
    faulthandler.enable()
    try:
        pinned = None if options.pinned is None else frozenset(options.pinned.read_text(encoding="utf-8").split())
        identity = Identity.generate()
        if options.farm is None:
            invitation, lifeline = _invited(identity), _follow
        else:
            invitation, answers, _domain = join(options.farm, identity.key_hash, options.patience)
            lifeline = functools.partial(_stay, answers)
        interpreter = Interpreter(invitation, identity, pinned)
    except (OSError, FarmError, Error) as error:
        print(f"gambeson worker: {error}", file=sys.stderr)
        return UNAVAILABLE
    threading.Thread(target=lifeline, name="lifeline", daemon=True).start()
    threading.Thread(target=interpreter.watch, name="watch", daemon=True).start()
    interpreter.serve()
    return 0


def _invited(identity: Identity) -> Invitation:
    """The invitation of the manager that started this process: the key goes out, and it comes in."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What tasks print is for people; the pipe to the manager is not, which ends with this process and not before.
    pipe = os.dup(1)
    os.dup2(2, 1)
    try:
        os.write(pipe, json.dumps({"key": identity.key_hash.hex()}).encode() + b"\n")
    except BrokenPipeError:
        # Nobody waits for it any more.
        sys.exit(0)
    line = sys.stdin.readline()
    try:
        return Invitation.decode(line)
    except (ValueError, TypeError):
        what = "nobody invites this worker: managers start it themselves; to join one that runs, give --farm FILE"
        raise FarmError(what) from None


def _stay(answers: Answers) -> None:
    """The manager is gone when its answers end."""
    with contextlib.suppress(Error):
        for _ in answers:
            pass
    os._exit(0)


def _follow() -> None:
    """Whoever started this worker is gone when the pipe ends: nobody is left behind."""
    while os.read(0, 4096):
        pass
    os._exit(0)
