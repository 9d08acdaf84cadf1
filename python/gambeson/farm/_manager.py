"""The manager: takes a program, recruits workers to keep a contract, and computes streams (secure-muskel paper, section
2).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import platform
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from gambeson import _native
from gambeson._progress import Progress, told
from gambeson.farm import _protocol
from gambeson.farm._code import StagedCode, pickled
from gambeson.farm._contract import Contract
from gambeson.farm._control import Control, follow
from gambeson.farm._errors import Failure, FarmError, WorkersLost
from gambeson.farm._explain import Explanation, explain
from gambeson.farm._graph import Apply, Graph, compile_graph
from gambeson.farm._invitation import Invitation, address_towards
from gambeson.farm._journal import Journal, Records
from gambeson.farm._page import Page
from gambeson.farm._pool import Pool
from gambeson.farm._protocol import ToManager
from gambeson.farm._recruit import LOCALHOST, Recruiter, address_of, local
from gambeson.farm._security import Place, Security
from gambeson.farm._skeleton import Stage, Stageable, skeleton
from gambeson.farm._source import Source
from gambeson.farm._stats import Stats
from gambeson.farm._stream import Results, Tokens, chained, outcomes
from gambeson.farm._task import Staged
from gambeson.farm._turns import Turns
from gambeson.link import Domain, Error, Identity, Trust

A = TypeVar("A")
B = TypeVar("B")

_log = logging.getLogger("gambeson.farm")

TICK = 0.25
"""Seconds between two looks at the clock."""
JOINING = 60.0
"""Seconds that a worker has to connect."""
FUTILE = 5
"""So many workers in a row that end before they did anything are no accident."""


class Manager(Generic[A, B]):
    """Computes a program on workers, which it recruits, replaces when they fail, and releases.

    A context manager. `program` is a skeleton, or a function. `workers` says where workers come from, this host without
    it, and `parallelism` how many there are to be, as many as processors without it, or as join; with a `throughput`,
    of so many items a second, as many as keep that, and `parallelism` at the most. After `idle` seconds without work
    they are released, and recruited again when there is some. `attempts` is how many workers a task may end before it
    is given up; `retries` how often a task that raised is tried again, and `timeout` the seconds that one may take.
    `chunk` is how many items go to a worker together: as many as make it worth while, unless it is given. `verify` is
    the share of tasks that another worker computes, too. A stream has at most `memory` bytes under way, and a token,
    items that go to a worker together or their results, `largest`. `patience` is how many seconds a task waits for a
    worker that may see its data, and `silence` how many a worker may say nothing. `identity` is a file with the
    manager's key and certificate (PEM), by which stations know it; a fresh key without it. Workers connect to the
    address `listen`, which is found by itself, or meet the manager at one of the `relays`; on this host over shared
    memory, unless `shm` is false. With a `journal` results are kept in a file, and the same program goes on from there
    when it was ended. With `proxy="process"` each stream is iterated over and pickled in a copy of this process, as it
    is then. With `speculate` workers that have nothing to do get copies of tasks that take others four times as long as
    usual, and the first result counts.
    """

    def __init__(
        self,
        program: Stageable[A, B],
        *,
        parallelism: int | None = None,
        throughput: float | None = None,
        idle: float | None = None,
        workers: Recruiter | Sequence[Recruiter] | None = None,
        security: Security | None = None,
        attempts: int = 3,
        retries: int = 0,
        timeout: float | None = None,
        chunk: int | None = None,
        verify: float = 0.0,
        memory: int = 256 << 20,
        largest: int = 4 << 30,
        patience: float = 60.0,
        silence: float = 10.0,
        identity: str | os.PathLike[str] | None = None,
        listen: str | None = None,
        relays: Sequence[str] = (),
        shm: bool = True,
        journal: Journal | None = None,
        proxy: Literal["thread", "process"] = "thread",
        speculate: bool = False,
    ) -> None:
        if attempts < 1 or retries < 0 or memory < 1 or (chunk is not None and chunk < 1):
            raise ValueError("attempts, memory and chunk are 1 at least, and retries 0")
        if proxy not in ("thread", "process"):
            what = f'items are pickled by the "thread" that iterates, or in a "process" of its own, and not {proxy!r}'
            raise ValueError(what)
        self._tokens: type[Tokens] = Source if proxy == "process" else Tokens
        self.program = skeleton(program)
        self.graph: Graph = compile_graph(self.program)
        self._recruiters = [workers] if isinstance(workers, Recruiter) else list(workers or [local()])
        if not self._recruiters:
            raise ValueError("a farm without a place to recruit workers from computes nothing")
        if parallelism is None:
            parallelism = max(one.places(len(os.sched_getaffinity(0))) for one in self._recruiters)
        self._contract = Contract(parallelism, throughput, idle)
        self._closed = True
        self._memory = memory
        self._largest = largest
        self._patience = patience
        self._silence = silence
        self._shm = shm
        self._job = secrets.token_bytes(16)
        self._lock = threading.RLock()
        self._inbox = _native.NativeInbox()
        self._pool = Pool(
            security or Security(),
            self._stage,
            None if journal is None else Records(journal),
            self._wake,
            parallelism=self._contract.parallelism,
            attempts=attempts,
            retries=retries,
            timeout=timeout,
            chunk=chunk,
            verify=verify,
            largest=largest,
            speculate=speculate,
        )
        try:
            for instruction in self.graph.instructions:
                if stages := instruction.stages():
                    self._pool.staging.find(stages if isinstance(instruction, Apply) else stages[:1])
            self._open(listen, list(relays), Identity.generate() if identity is None else _read_identity(identity))
        except BaseException:
            if self._pool.records is not None:
                self._pool.records.close()
            raise

    def _open(self, listen: str | None, relays: list[str], identity: Identity) -> None:
        self._turns = Turns()
        self._settled: deque[Callable[[], None]] = deque()
        self._failure: BaseException | None = None
        self._page: Page | None = None
        self._next = 1
        self._starting = 0
        self._delivered = 0
        self._futile = 0
        self._began = time.monotonic()
        remote = [one for one in self._recruiters if not one.local]
        here = LOCALHOST
        if remote:
            hosts = (host for one in remote for host in one.reachable())
            here = next((address_towards(found) for host in hosts if (found := address_of(host))), "")
            here = here or address_of(platform.node()) or LOCALHOST
        self._listen = listen or f"{here}:0"
        self._address = self._listen.rpartition(":")[0].strip("[]")
        policy = self.security.policy()
        self._key = identity.key_hash
        address = None if self._address in ("0.0.0.0", "::") else self._address
        self._domain = Domain(
            identity,
            Trust(),
            listen=[self._listen],
            relays=relays,
            policy=policy,
            address=address,
            shm=self._shm,
            silence=self._silence,
        )
        for entry in self._pool.staging.program.values():
            self._sign(entry)
        self._closed = False
        for one in self._recruiters:
            one.open()
        self._thread = threading.Thread(
            target=_serve, args=(weakref.ref(self), self._inbox, self._turns), name="farm", daemon=True
        )
        self._thread.start()
        with self._lock:
            self._keep_contract()

    @property
    def security(self) -> Security:
        """What is protected beyond annotations, as it holds now: see `protect`."""
        return self._pool.security

    @property
    def parallelism(self) -> int:
        """How many workers there are to be at the most."""
        return self._contract.parallelism

    # --- code

    def _stage(self, number: int, stages: tuple[Stage[Any, Any], ...]) -> Staged:
        code, packages = pickled(stages)
        name = " + ".join(stage.name for stage in stages)
        staged = StagedCode(self._job, name, 1, code, b"", b"", packages)
        entry = Staged(number, name, stages[0].marks, stages[0].is_coroutine, staged, [])
        if self._pool.records is not None:
            entry.print = self._pool.records.of_stage(stages)
        if hasattr(self, "_domain"):
            self._sign(entry)
        return entry

    def _sign(self, entry: Staged) -> None:
        code = entry.code
        key, signature = self._domain._native.sign(code.job, code.name, code.version, code.hash)
        entry.code = StagedCode(code.job, code.name, code.version, code.code, bytes(key), signature, code.packages)
        entry.parts = entry.code.encode()

    @property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of the code of each stage: what a worker can be pinned to."""
        with self._lock:
            return {entry.name: entry.code.hash.hex() for _, entry in self._pool.staging.all()}

    # --- workers

    def _keep_contract(self) -> None:
        """Recruits as many workers as are missing."""
        while not self._closed and self._staying() + self._starting < self._contract.wanted:
            reserved = ((one, host) for one in self._recruiters if (host := one.reserve()) is not None)
            place = next(reserved, None)
            if place is None:
                spent = all(one.is_spent() for one in self._recruiters)
                if spent and not self._pool.controls and not self._starting:
                    what = "no worker is left, and none can be recruited where workers are to come from"
                    self._failure = self._failure or WorkersLost(what)
                return
            self._starting += 1
            threading.Thread(target=self._recruit, args=place, name="recruit", daemon=True).start()

    def _staying(self) -> int:
        return sum(not control.leaves for control in self._pool.controls.values())

    def _release(self) -> None:
        """Lets workers go that are too many, first those with the least to do."""
        controls = self._pool.controls
        spare = max(0, self._staying() - self._contract.wanted)
        staying = [control for control in controls.values() if not control.leaves]
        for control in sorted(staying, key=lambda control: (control.load, len(control.in_flight)))[:spare]:
            control.leaves = True
        for control in [control for control in controls.values() if control.leaves and not control.in_flight]:
            del controls[control.number]
            if control.joined:
                with contextlib.suppress(Error):
                    control.release()
            with contextlib.suppress(Error):
                self._domain.unpin(control.recruit.key)
            threading.Thread(target=self._dismiss, args=(control, 1.0), daemon=True).start()

    def _recruit(self, recruiter: Recruiter, host: str) -> None:
        try:
            recruit = recruiter.start(host, self._domain)
        except FarmError as error:
            with self._lock:
                recruiter.free(host)
                recruiter.failed(host)
                self._starting -= 1
                self._futile += 1
                self._despair(str(error))
            return
        with self._lock:
            self._starting -= 1
            if self._closed:
                recruit.dismiss()
                return
            number = self._next
            self._next += 1
            place = Place(recruit.name, recruit.host, recruit.address, recruit.local)
            security = self.security
            document = security.document_for(place)
            control = Control(number, recruit, recruiter, place, security.unpickles(place), document)
            self._pool.controls[number] = control
        native = self._domain._native
        self._domain.pin(recruit.key, recruit.name, ["worker"])
        control.endpoint = native.mailbox(
            [(int(kind), self._inbox) for kind in (ToManager.HELLO, ToManager.RESULT, ToManager.AGREED)],
            None, number, _protocol.CLASS, "integrity", self._largest + _protocol.FRAMING,
        )  # fmt: skip
        invitation = Invitation(
            manager=self._key.hex(),
            startpoint=bytes(control.endpoint.startpoint([]).encode()).hex(),
            job=self._job.hex(),
            policy=document,
            shm=self._shm,
            largest=self._largest,
            towards=self._address,
        )
        try:
            recruit.invite(invitation)
        except (OSError, Error):
            self._inbox.put(number, ToManager.LOST, 0, 0, b"it ended before it was invited")
            return
        recruit.wait()
        with contextlib.suppress(Error):
            self._inbox.put(number, ToManager.LOST, 0, 0, b"")

    def _joined(self, control: Control, parts: list[Any]) -> None:
        """A worker has connected."""
        try:
            hello, startpoint = json.loads(bytes(parts[0])), bytes(parts[1])
            python, version, pid = str(hello["python"]), hello["version"], int(hello["pid"])
        except (ValueError, KeyError, TypeError, IndexError):
            return self._drop(control, "it does not say who it is as a worker does")
        if control.links:
            return self._drop(control, "it has connected twice")
        mine = ".".join(platform.python_version_tuple()[:2])
        theirs = ".".join(python.split(".")[:2])
        if version != _protocol.VERSION or theirs != mine:
            return self._drop(
                control,
                f"it has Python {python} and Gambeson {hello.get('gambeson')}, and this program Python "
                f"{platform.python_version()} and Gambeson {_native.VERSION}: staged code is for the same Python "
                "alone, so start workers with that (python=...)",
            )
        control.pid = pid
        control.plain = hello.get("plain") is True
        try:
            control.bind(self._domain, startpoint)
            if control.document == self.security.document_for(control.place):
                control.open_clear(self._domain)
            else:
                control.order(self.security.document_for(control.place), self._pool.staging.taken)
        except Error as error:
            self._drop(control, f"there is no link to it: {error}")
        return None

    def _agreed(self, control: Control) -> None:
        """A worker follows the policy that it was told."""
        if not control.unsure:
            return self._drop(control, "it agrees to what it was not told")
        self._pool.agreed(control)
        if not control.unsure:
            try:
                control.open_clear(self._domain)
            except Error as error:
                self._drop(control, f"there is no link to it: {error}")
        return None

    def _drop(self, control: Control, why: str) -> None:
        """A worker is gone, or has to go."""
        if self._pool.controls.pop(control.number, None) is None:
            return
        how = control.recruit.ended()
        # One that a task has ended is that task's affair.
        if control.done == 0 and not control.in_flight:
            self._futile += 1
            control.recruiter.failed(control.recruit.place)
        _log.warning("worker %s is lost: %s", control, how or why or "it ended")
        with contextlib.suppress(Error):
            self._domain.unpin(control.recruit.key)
        control.close()
        threading.Thread(target=self._dismiss, args=(control, 0.0), daemon=True).start()
        self._pool.lost(control, how or why or "it ended")
        self._despair(why or how or "it ended")
        self._keep_contract()

    def _dismiss(self, control: Control, patience: float) -> None:
        control.recruit.dismiss(patience)
        control.close()
        with self._lock:
            control.recruiter.free(control.recruit.place)

    def _despair(self, why: str) -> None:
        """Workers that end as soon as they begin are not replaced for ever."""
        if self._futile >= FUTILE and not any(control.joined for control in self._pool.controls.values()):
            futile = f"{self._futile} workers ended before they computed anything, the last one since {why}"
            what = f"{futile}; none is recruited any more"
            self._failure = WorkersLost(what)

    # --- what happens

    def _guard(self, messages: list[_native.Taken], tick: bool) -> None:
        """Handles messages; what must not happen ends the farm, and is raised by whoever uses it."""
        try:
            self._serve_messages(messages, tick)
            if tick and (records := self._pool.records) is not None:
                # Without the lock: disks take their time.
                records.sync()
        except Exception as error:
            self._failure = self._failure or error
        except BaseException:
            # Ctrl-C in the midst of it: nobody knows what is left undone.
            self._failure = self._failure or FarmError("this farm was interrupted, and computes no more")
            raise
        if self._failure is not None:
            with self._lock:
                self._pool.abandon(self._failure)
        self._tell()

    def _tell(self) -> None:
        """Tells whoever waits for futures. Without the lock: what they do then may take others."""
        while self._settled:
            self._settled.popleft()()

    def _take(self, patience: float) -> None:
        try:
            messages = self._inbox.take(256, patience)
        except Error:
            # Closed by somebody else.
            self._check()
            raise
        if messages:
            self._guard(messages, tick=False)

    def _wake(self) -> None:
        """Has whoever takes messages look at what is to be done."""
        self._inbox.put(0, ToManager.WAKE, 0, 0, b"")

    def _serve_messages(self, messages: list[_native.Taken], tick: bool) -> None:
        pool = self._pool
        with self._lock:
            pool.drop()
            pool.forget_code()
            for source, kind, number, word, parts in messages:
                control = pool.controls.get(source)
                if control is None:
                    continue
                if kind == ToManager.RESULT:
                    pool.result(control, number, word, parts)
                    if control.done == 1:
                        self._futile = 0
                        control.recruiter.worked(control.recruit.place)
                elif kind == ToManager.HELLO:
                    self._joined(control, parts)
                elif kind == ToManager.AGREED:
                    self._agreed(control)
                elif kind == ToManager.LOST:
                    how = control.recruit.ended()
                    self._drop(control, bytes(parts[0]).decode() or how or "")
                else:
                    self._drop(control, "it sent what is no message of a farm's")
            if tick:
                self._tick()
            for control, why, distrusted in pool.expelled:
                if distrusted:
                    control.recruiter.distrust(control.recruit.place)
                self._drop(control, why)
            pool.expelled.clear()
            pool.recall()
            pool.dispatch()

    def _tick(self) -> None:
        self._pool.tick(self._patience)
        for control in list(self._pool.controls.values()):
            if control.links:
                try:
                    silent = control.ping()
                except Error as error:
                    self._drop(control, str(error))
                    continue
                if silent > self._silence:
                    self._drop(control, f"nothing was heard of it for {silent:.1f} s")
            elif time.monotonic() - control.heard > JOINING:
                self._drop(control, f"it did not connect within {JOINING:g} s")
        pool, now = self._pool, time.monotonic()
        if not pool.is_idle():
            self._contract.work(now)
        joined = sum(control.joined and not control.leaves for control in pool.controls.values())
        self._contract.look(now, joined, self._delivered, pool.busy)
        self._keep_contract()
        self._release()

    # --- streams

    def run(
        self,
        inputs: Iterable[A],
        *,
        ordered: bool = True,
        errors: Literal["raise", "return"] = "raise",
        progress: bool | Progress = False,
    ) -> Iterator[B]:
        """Computes a stream, which may have no end: results come as they are wanted, in the order of the items, or, if
        not `ordered`, as they are done. What a stage raised is raised in the place of its result, or stands there as a
        `Failure`. With `progress` a bar shows how far it is (tqdm's, in notebooks, too), or a function is told.
        """
        if errors not in ("raise", "return"):
            what = f'errors are "raise"d or "return"ed, and not {errors!r}'
            raise ValueError(what)
        results = self._run(chained(inputs), ordered, errors == "return")
        return (
            results
            if progress is False
            else _shown(results, len(inputs) if isinstance(inputs, Sized) else None, progress)
        )

    def _run(self, inputs: Iterator[A], ordered: bool, returned: bool) -> Iterator[Any]:
        results, tokens = Results(ordered, self._count), self._tokens(inputs)
        try:
            while True:
                self._check()
                self._feed(tokens, results)
                if tokens.ended and not results.under_way():
                    return
                if results.under_way():
                    self._turns.wait(results.is_there, self._take, 2 * TICK)
                for _, token in results.take():
                    for outcome in outcomes(token):
                        if type(outcome) is Failure and not returned:
                            raise outcome.error
                        yield outcome
        finally:
            tokens.close()
            # Whoever leaves early wants nothing more. Without the lock: a generator may go at any time, anywhere.
            if results.under_way():
                self._pool.cancel(results)
                self._wake()

    def _count(self, items: int) -> None:
        self._delivered += items
        self._pool.bounds.passage.through(items)

    def _feed(self, tokens: Tokens, results: Results) -> None:
        """Takes as many items in as workers can be given."""
        first, pool = self.graph.first, self._pool
        # Not for ever: results are waited for, too.
        with self._lock:
            pool.drop()
            visit, most, count = pool.room(first, self._memory)
        if not results.under_way():
            # Whatever others have under way.
            visit = max(visit, 1)
        for _ in range(visit):
            if tokens.ended or results.bytes > self._memory or results.under_way() >= most:
                return
            fresh = tokens.next(count)
            with self._lock:
                for token in fresh:
                    pool.fire(first, token, results, results.enter(token))
                pool.dispatch()
                if not pool.controls:
                    self._contract.work(time.monotonic())
                    self._keep_contract()
            self._tell()

    def compute(
        self,
        inputs: Iterable[A],
        *,
        errors: Literal["raise", "return"] = "raise",
        progress: bool | Progress = False,
    ) -> list[B]:
        """The results of all items, in their order."""
        return list(self.run(inputs, errors=errors, progress=progress))

    async def arun(
        self,
        inputs: Iterable[A] | AsyncIterable[A],
        *,
        ordered: bool = True,
        errors: Literal["raise", "return"] = "raise",
    ) -> AsyncIterator[B]:
        """As `run`, in asyncio, also of what is iterated over asynchronously."""
        loop = asyncio.get_running_loop()
        if not isinstance(inputs, Iterable) and self._tokens is Source:
            raise ValueError(
                'what is iterated over asynchronously is so here, and not in a process of its own (proxy="process")'
            )
        source: Iterable[A] = inputs if isinstance(inputs, Iterable) else _Ahead(inputs, loop)
        results = self.run(source, ordered=ordered, errors=errors)
        end = object()
        while (outcome := await asyncio.to_thread(next, results, end)) is not end:
            yield outcome  # type: ignore[misc]

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # --- other rules

    def protect(self, security: Security) -> None:
        """Has other rules hold while the farm runs: what is sent from the return of this call on goes as they say.

        The links to the workers agree on it among themselves, and none is started anew for it: the encrypting proxies
        that components of a program negotiate when a link is not secure any more (secure-muskel paper, end of section
        4.6). Where more is to be sealed, links that are not end at once, each worker concerned is waited for until it
        has answered behind all that was under way, and what was lost with a link is sent or computed again, sealed.
        Where less is to be sealed, it is so as soon as a worker is through with what it has. A task whose worker may
        not see its data any more is taken from it, and waits for another one. Results of workers that are not trusted
        any more are not unpickled; what they were asked for before is computed again.

        What was sent or seen before stays so. A worker that does not answer for `silence` seconds is replaced.

        Raises `FarmError` when the farm is closed.
        """
        if not isinstance(security, Security):
            what = f"a farm is protected as a farm.Security says, and not {type(security).__name__}"
            raise TypeError(what)
        with self._lock:
            self._check()
            pool = self._pool
            pool.protect(security)
            there = [control for control in pool.controls.values() if control.links]
            gone = follow(self._domain, there, security, pool.staging.taken)
            pool.expelled += [(control, str(error), False) for control, error in gone.items()]
            pool.dispatch()
        self._tell()
        self._wake()
        deadline = time.monotonic() + self._silence
        for control in there:
            try:
                if control.ordered is not None:
                    control.ordered.result(max(0.0, deadline - time.monotonic()))
            except (Error, TimeoutError):
                with self._lock:
                    self._drop(control, f"it did not take another policy within {self._silence:g} s")
        self._tell()
        self._wake()

    # --- seeing it

    def explain(self) -> Explanation:
        """For each stage and worker, what is protected and by which rule."""
        with self._lock:
            return explain(self._pool, self.graph)

    def stats(self) -> Stats:
        """What was done so far, by stage and by worker."""
        with self._lock:
            return Stats.of(self._pool, time.monotonic() - self._began)

    def page(self, port: int = 0) -> Page:
        """Serves a page on this host that shows the farm at work, at `page.url`, and metrics for Prometheus at
        `/metrics` of `page.address`, until the farm is closed. `port` 0 takes a free one.
        """
        with self._lock:
            self._check()
            if self._page is None:
                self._page = Page(port, self.stats, lambda: self.explain().records())
            return self._page

    def wait_for_workers(self, count: int | None = None, timeout: float = 60.0) -> None:
        """Waits until so many workers are there, or as many as the contract says.

        Raises `FarmError` when they are not there in time.
        """
        wanted = self._contract.wanted if count is None else count
        deadline = time.monotonic() + timeout
        while True:
            self._check()
            with self._lock:
                there = sum(control.joined for control in self._pool.controls.values())
            if there >= wanted:
                return
            if time.monotonic() > deadline:
                what = f"{there} of {wanted} workers are there after {timeout:g} s"
                raise FarmError(what)
            time.sleep(0.002)

    def close(self) -> None:
        """Releases the workers. What is under way is not waited for."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._failure = self._failure or FarmError("this farm was closed")
            self._pool.abandon(self._failure)
            controls = list(self._pool.controls.values())
            self._pool.controls.clear()
            records, self._pool.records = self._pool.records, None
        self._tell()
        self._wake()
        for control in controls:
            if control.joined:
                with contextlib.suppress(Error):
                    control.release()
        deadline = time.monotonic() + 1.0
        for control in controls:
            control.recruit.dismiss(max(0.0, deadline - time.monotonic()) if control.joined else 0.0)
            control.close()
        if records is not None:
            records.close()
        for one in self._recruiters:
            one.close()
        self._inbox.close()
        self._domain.close()
        if self._page is not None:
            self._page.close()

    def __enter__(self) -> Manager[A, B]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()


def _serve(manager: weakref.ref[Manager[Any, Any]], inbox: _native.NativeInbox, turns: Turns) -> None:
    """The manager's thread; it ends with the manager."""

    def take(patience: float) -> None:
        messages = inbox.take(256, patience)
        if (there := manager()) is not None and messages:
            there._guard(messages, tick=False)

    ticked = time.monotonic()
    while True:
        try:
            turns.stand_in(take, TICK)
        except Error:
            return
        there = manager()
        if there is None or there._closed:
            return
        now = time.monotonic()
        if now - ticked >= TICK:
            ticked = now
            there._guard([], tick=True)
        del there


def _read_identity(path: str | os.PathLike[str]) -> Identity:
    pem = Path(path).read_bytes()
    return Identity.from_pem(pem, pem)


def _shown(results: Iterator[B], total: int | None, progress: bool | Progress) -> Iterator[B]:
    """Results, while somebody sees how many there were."""
    with told(progress, " items") as tell:
        shown = 0.0
        count = 0
        try:
            for count, result in enumerate(results, 1):
                if time.monotonic() - shown > 0.1:
                    shown = time.monotonic()
                    tell(count, total)
                yield result
        finally:
            # Also when somebody has seen enough, or a stage has failed.
            tell(count, total)


class _Ahead(Iterator[A]):
    """What an asynchronous iterator brings, for a thread that waits for it."""

    def __init__(self, inputs: AsyncIterable[A], loop: asyncio.AbstractEventLoop) -> None:
        self._inputs = aiter(inputs)
        self._loop = loop

    def __next__(self) -> A:
        async def following() -> A:
            return await anext(self._inputs)

        try:
            return asyncio.run_coroutine_threadsafe(following(), self._loop).result()
        except StopAsyncIteration:
            raise StopIteration from None


def run(program: Stageable[A, B], inputs: Iterable[A], *, parallelism: int | None = None, **options: Any) -> list[B]:
    """The results of all items, in their order, by workers that are there as long as it takes.

    The options are those of `Manager`.
    """
    with Manager(program, parallelism=parallelism, **options) as manager:
        return manager.compute(inputs)
