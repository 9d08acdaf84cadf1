"""The pool of fireable instructions, and who computes which (secure-muskel paper, section 2).

Everything here happens under the manager's lock. A task goes to a worker only when that has room for it, and the next
one when one returns: whoever is faster gets more.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import weakref
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gambeson.farm import _plain, _protocol
from gambeson.farm._annotation import Marks
from gambeson.farm._control import FEW, LONG, WORK, Control
from gambeson.farm._errors import (
    Failure,
    FarmError,
    JournalError,
    NotCleared,
    PoisonedTask,
    RemoteError,
    RemoteTraceback,
    ResultsDiffer,
    StageError,
    TaskTimeout,
)
from gambeson.farm._frames import Frame, Gathering, Looping, fold, spread
from gambeson.farm._graph import Apply, Fold, Instruction, Loop, Spread
from gambeson.farm._protocol import Mode
from gambeson.farm._security import Decision, Security
from gambeson.farm._skeleton import Stage
from gambeson.farm._token import NO_LABELS, Token, load, not_loaded
from gambeson.farm._verify import Opinion, Verifier
from gambeson.link import Error

if TYPE_CHECKING:
    from gambeson.farm._code import StagedCode
    from gambeson.farm._journal import Records

CHUNK_TIME = 1e-3
"""Seconds of work that items are put together for."""
CHUNK_BYTES = 1 << 20
"""Bytes of items that are put together, at the most."""
CHUNK_MAX = 1024
RECALL = 5e-3
"""Seconds of results out of the journal that are gone on with before others get their turn."""
AHEAD = 8
"""Tokens of a stream that are under way for each that a worker is given ahead: they wait, or wait for others."""
COROUTINES = 16
"""Items that a worker awaits at the same time."""
RECENT = 16
"""Tokens after which what came out before them counts half."""
SLOW, SLOW_MIN = 4.0, 0.1
"""A task is slow that takes so many times what others of its stage take, and so many seconds."""
GRACE = 2.0
"""Seconds that a worker has to leave off a task before it counts as hung."""


class Task:
    """A fired instruction: a token, and what is to be done with it."""

    __slots__ = (
        "after", "attempts", "causes", "control", "deadline", "entry", "expected", "frame", "labels_out", "marks",
        "mode", "number", "only", "opinions", "pickled", "place", "retries", "since", "stage", "token", "twin",
    )  # fmt: skip

    def __init__(self, number: int, stage: Staged, mode: Mode, token: Token, frame: Frame, place: int) -> None:
        self.number = number
        self.stage = stage
        self.mode = mode
        self.token = token
        self.frame = frame
        self.place = place
        self.marks = stage.marks
        self.labels_out = stage.marks.labels_out(token.labels)
        self.after: Instruction | None = None
        self.only: array[int] | None = None
        self.attempts = 0
        self.causes: list[str] = []
        self.retries = 0
        self.control: Control | None = None
        self.pickled = False
        """Whether its result may be a pickle."""
        self.deadline = 0.0
        self.since = 0.0
        self.expected = 0.0
        self.opinions: list[Opinion] | None = None
        """What workers said so far, of a task of the sample."""
        self.twin: Task | None = None
        """The same task at another worker, which may be faster."""
        self.entry: bytes | None = None
        """What its entry in the journal is called."""

    @property
    def labels(self) -> frozenset[str]:
        """The labels of all that whoever computes it sees."""
        return self.marks.labels_in(self.token.labels) | self.labels_out


@dataclass(eq=False)
class Staged:
    """A stage as it is staged."""

    number: int
    name: str
    marks: Marks
    is_coroutine: bool
    code: StagedCode
    parts: list[bytes]
    print: bytes | None = None
    """Its fingerprint, if there is a journal."""
    seconds: float = 0.0
    """Of one item; 0 as long as nothing is known."""
    size: float = 0.0
    """Bytes of one item."""
    items: int = 0
    busy: float = 0.0

    def took(self, seconds: float, items: int, size: int) -> None:
        """Some items of so many bytes took so long."""
        each, bytes_each = seconds / max(1, items), size / max(1, items)
        self.seconds = each if self.items == 0 else 0.8 * self.seconds + 0.2 * each
        self.size = bytes_each if self.items == 0 else 0.8 * self.size + 0.2 * bytes_each
        self.items += items
        self.busy += seconds


@dataclass
class Passage:
    """What an item of a stream takes on its way through all of the program, by those that came out lately."""

    items: float = 0.0
    seconds: float = 0.0
    bytes: float = 0.0
    """Of results, also of those on the way."""
    _tokens: int = 0

    def took(self, seconds: float, size: int) -> None:
        """A task, which is part of it, took so long and made so many bytes."""
        self.seconds += seconds
        self.bytes += size

    def through(self, items: int) -> None:
        """Some items came out. What was before counts less and less."""
        self.items += items
        self._tokens += 1
        if self._tokens % RECENT == 0:
            self.items, self.seconds, self.bytes = self.items / 2, self.seconds / 2, self.bytes / 2


class Pool:
    """Fireable instructions, and the workers that compute them."""

    def __init__(
        self,
        security: Security,
        stage: Callable[[int, tuple[Stage[Any, Any], ...]], Staged],
        records: Records | None,
        wake: Callable[[], None],
        *,
        parallelism: int,
        attempts: int,
        retries: int,
        timeout: float | None,
        chunk: int | None,
        verify: float,
        largest: int,
        speculate: bool,
    ) -> None:
        self.security = security
        self.controls: dict[int, Control] = {}
        self.staged: dict[tuple[int, ...], Staged] = {}
        """The stages of the program."""
        self.called: weakref.WeakValueDictionary[tuple[bytes, Marks], Staged] = weakref.WeakValueDictionary()
        """Those of an executor's calls, as long as somebody has them: by code."""
        self.busy = 0.0
        """Seconds that tasks took."""
        self.expelled: list[tuple[Control, str, bool]] = []
        """Workers that the manager has to end, why, and whether their hosts are not to be trusted with another one."""
        self.retried = 0
        self.verified = 0
        self.recovered = 0
        self.recalled = 0
        self.speculated = 0
        self.passage = Passage()
        self.records = records
        self._stage = stage
        self._wake = wake
        self._parallelism = parallelism
        self._attempts = attempts
        self._retries = retries
        self._timeout = timeout
        self._chunk = chunk
        self._largest = largest
        self._speculate = speculate
        self._verifier = Verifier(verify)
        self._second: list[Task] = []
        self._numbers = itertools.count(1)
        self._stage_numbers = itertools.cycle(range(1, _protocol.STAGE_MASK + 1))
        self.taken: set[int] = set()
        """Numbers of stages that workers may have."""
        self._unused: deque[tuple[int, Marks]] = deque()
        """Stages that no task is of any more, and that workers have not forgotten."""
        self._ready: dict[frozenset[str], deque[Task]] = {}
        self._deadlines: dict[int, Task] = {}
        self._grace: dict[int, tuple[float, Control]] = {}
        self._cancelled: deque[Frame] = deque()
        self._known: deque[Task] = deque()
        """Tasks whose results the journal has."""

    # --- what fires

    def parallelism(self) -> int:
        """How many workers there are, at least one."""
        return max(1, sum(control.joined for control in self.controls.values()))

    def breadth(self) -> int:
        """How many workers what is folded is made ready for: the same number in each run."""
        return self._parallelism

    def chunk(self, instruction: Instruction, available: int) -> int:
        """How many items go to a worker together that enters at this instruction."""
        if self._chunk is not None:
            return self._chunk
        if not isinstance(instruction, Apply) or self._retries:
            return 1
        if self.records is not None:
            # The same in each run, or no task would be found again.
            return COROUTINES if instruction.functions[0].is_coroutine else 1
        staged = self.staged.get(tuple(id(stage) for stage in instruction.functions))
        fair = -(-available // (2 * self.parallelism()))
        if instruction.functions[0].is_coroutine:
            return max(1, min(COROUTINES, fair))
        if staged is None or staged.items == 0 or self._timeout is not None:
            return 1
        # Step by step: the first items may be no measure for the rest.
        worth = min(int(CHUNK_TIME / max(staged.seconds, 1e-7)), int(CHUNK_BYTES / max(staged.size, 1.0)))
        return max(1, min(CHUNK_MAX, 4 * staged.items, worth, fair))

    def fire(self, instruction: Instruction | None, token: Token, frame: Frame, place: int) -> None:
        """A token has come to an instruction; without one, to the end of its graph."""
        if instruction is None:
            frame.deliver(token, place)
        elif isinstance(instruction, Apply):
            self.submit(instruction, self.find(instruction.functions), Mode.EACH, token, frame, place)
        elif token.count != 1:
            self._apart(instruction, token, frame, place)
        elif isinstance(instruction, Spread):
            spread(self, instruction, token, frame, place)
        elif isinstance(instruction, Fold):
            fold(self, instruction, token, frame, place)
        elif isinstance(instruction, Loop):
            if token.failures:
                self.fire(instruction.after, token, frame, place)
            else:
                self.fire(instruction.body, token, Looping(self, instruction, frame, place), place)

    def _apart(self, instruction: Instruction, token: Token, frame: Frame, place: int) -> None:
        """Items that are one token go on by themselves."""
        items, failures = token.outcomes()
        gathering = Gathering(self, None, frame, place, token.count)
        for at, item in enumerate(items):
            single = Token.of([item], token.labels)
            if at in failures:
                single.failures = {0: failures[at]}
            self.fire(instruction, single, gathering, at)

    def submit(
        self,
        instruction: Instruction | None,
        stage: Staged,
        mode: Mode,
        token: Token,
        frame: Frame,
        place: int,
    ) -> Task | None:
        """Has workers do something with a token."""
        task = Task(next(self._numbers), stage, mode, token, frame, place)
        if mode is Mode.EACH and instruction is not None:
            task.after = instruction.after
        task.retries = self._retries
        failures = token.failures
        if failures:
            left = [at for at in range(token.count) if at not in failures]
            if not left:
                token.labels = task.labels_out
                self.fire(task.after, token, frame, place)
                return None
            task.only = array("I", left)
        elif self.records is not None:
            task.entry = self.records.name(task)
            if task.entry in self.records:
                self._known.append(task)
                if len(self._known) == 1:
                    self._wake()
                return task
        self._queue(task).append(task)
        return task

    def recall(self) -> None:
        """Goes on with what the journal has, for some time.

        Raises `JournalError`.
        """
        until = time.monotonic() + RECALL
        while self._known:
            task = self._known[0]
            assert self.records is not None and task.entry is not None
            token = self.records.recall(task.entry, task.labels_out)
            self._known.popleft()
            self.recalled += 1
            self.fire(task.after, token, task.frame, task.place)
            if time.monotonic() > until and self._known:
                # Others want the lock.
                self._wake()
                return

    def find(self, stages: tuple[Stage[Any, Any], ...]) -> Staged:
        """The staged code of these functions of the program; staged now, if it was not before."""
        key = tuple(id(stage) for stage in stages)
        staged = self.staged.get(key)
        if staged is None:
            staged = self.staged[key] = self._stage(self._stage_number(), stages)
        return staged

    def call(self, stage: Stage[Any, Any]) -> Staged:
        """The staged code of a function that is called: the same for those with the same code. When nobody has it any
        more, and no task is of it, it is forgotten, by workers, too.
        """
        staged = self._stage(0, (stage,))
        key = (staged.code.hash, staged.marks)
        known = self.called.get(key)
        if known is not None:
            return known
        staged.number = self._stage_number()
        weakref.finalize(staged, self._unused.append, (staged.number, staged.marks)).atexit = False
        self.called[key] = staged
        return staged

    def _stage_number(self) -> int:
        """One that no worker knows, and none knew lately."""
        if len(self.taken) == _protocol.STAGE_MASK:
            what = f"the code of {len(self.taken)} functions is wanted at the same time, which is the most"
            raise StageError(what)
        number = next(number for number in self._stage_numbers if number not in self.taken)
        self.taken.add(number)
        return number

    def forget_code(self) -> None:
        """Workers forget the stages that are not used any more."""
        while self._unused:
            number, marks = self._unused.popleft()
            self.taken.remove(number)
            for control in self.controls.values():
                if control.joined:
                    with contextlib.suppress(Error):
                        control.forget(number, self.decide(control, marks, NO_LABELS).sealed)

    def stages(self) -> list[tuple[object, Staged]]:
        """All of them."""
        return [*self.staged.items(), *self.called.items()]

    def forget(self, task: Task) -> bool:
        """Nobody wants a task any more. Whether no worker has it."""
        queue = self._queue(task)
        if task.control is not None or task not in queue:
            return False
        queue.remove(task)
        return True

    def cancel(self, run: Frame) -> None:
        """Nobody wants what comes of a run any more. Without the manager's lock: see `drop`."""
        self._cancelled.append(run)

    def drop(self) -> None:
        """What waits of runs that were cancelled is forgotten, and workers leave off what they are at."""
        while self._cancelled:
            run = self._cancelled.popleft()
            for queue in (self._second, self._known, *self._ready.values()):
                left = [task for task in queue if task.frame.run is not run]
                queue.clear()
                queue.extend(left)
            for control in self.controls.values():
                for number in [number for number, task in control.in_flight.items() if task.frame.run is run]:
                    self._deadlines.pop(number, None)
                    self._stop(control, number)

    def _stop(self, control: Control, number: int) -> None:
        """A worker leaves off a task, in time if it is at it."""
        is_first = next(iter(control.in_flight)) == number
        control.take_back(number)
        with contextlib.suppress(Error):
            control.cancel(number)
        if is_first:
            control.stops.add(number)
            self._grace[number] = (time.monotonic() + GRACE, control)

    def _left_off(self, control: Control, number: int) -> None:
        """A worker is through with a task that nobody waits for."""
        control.stops.discard(number)
        self._grace.pop(number, None)

    def protect(self, security: Security) -> None:
        """Other rules hold from now on: what waits is judged anew, and workers leave off what they may not see."""
        self.security = security
        for control in self.controls.values():
            control.decisions.clear()
            control.trusted = security.unpickles(control.place)
            for task in list(control.in_flight.values()):
                if not security.may_see(control.place, task.labels):
                    self._stop(control, task.number)
                    self._anew(task)
        # Who was to be asked for another result may not see its data any more.
        second = [task for task in self._second if task.labels & security.restricted]
        self._second = [task for task in self._second if task not in second]
        waiting = [*second, *(task for queue in self._ready.values() for task in queue)]
        self._ready.clear()
        for task in sorted(waiting, key=lambda task: task.number):
            task.opinions = None
            task.since = 0.0
            self._queue(task).append(task)

    def agreed(self, control: Control) -> None:
        """A worker is through with what it had when it was told of another policy: what has not come back is lost."""
        for number in control.unsure.popleft():
            task = control.take_back(number)
            if task is not None:
                self._anew(task)
            else:
                self._left_off(control, number)

    def _anew(self, task: Task) -> None:
        """A task goes to the next worker by another number: who still has it may say something of the first."""
        self._deadlines.pop(task.number, None)
        task.number = next(self._numbers)
        self._again(task)

    def _queue(self, task: Task) -> deque[Task]:
        labels = task.labels & self.security.restricted
        return self._ready.setdefault(labels, deque())

    def waiting(self) -> int:
        """Fireable instructions that no worker has."""
        return sum(map(len, self._ready.values())) + len(self._second) + len(self._known)

    def room(self, first: Instruction, memory: int) -> tuple[int, int, int]:
        """How many more tasks may enter at this instruction so that no worker waits for one; how many of a stream there
        may be in all; and how many items each has. What is under way of a stream is work for some milliseconds, and
        takes `memory` bytes at the most, as far as is known; until something came out, nothing is.
        """
        # Of what does not begin with a function each item goes its own ways.
        count = self.chunk(first, 1 << 30) if isinstance(first, Apply) else 1
        passage, parallelism = self.passage, self.parallelism()
        work, fit = 1.0, 2 * parallelism * count
        if passage.items:
            work = WORK / max(passage.seconds / passage.items, 1e-7)
            fit = int(memory / max(passage.bytes / passage.items, 1.0))
        if self._chunk is None and self.records is None:
            count = max(1, min(count, int(work), fit // (AHEAD * parallelism)))
        ahead = max(1, min(FEW, CHUNK_MAX // count, int(work / count))) * parallelism
        return 2 * ahead - self.waiting(), max(1, min(AHEAD * ahead, fit // count)), count

    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.waiting() and not any(control.in_flight for control in self.controls.values())

    # --- what goes out

    def dispatch(self) -> None:
        """Gives tasks to workers that have room, first to who has the least to do."""
        while self._second or any(self._ready.values()):
            # A task's time runs from when it is sent: none waits behind another then.
            ahead = self._timeout is None
            free = [control for control in self.controls.values() if control.has_room(ahead)]
            free.sort(key=lambda control: (len(control.in_flight), control.load))
            for control in free:
                task = self._for(control)
                if task is not None:
                    self._send(control, task)
                    break
            else:
                break
        if self._speculate:
            self._double()

    def _double(self) -> None:
        """Workers that have nothing to do get copies of tasks that take others long."""
        idle = [control for control in self.controls.values() if control.has_room(False)]
        if not idle:
            return
        now = time.monotonic()
        slow = [
            task
            for control in self.controls.values()
            for task in control.in_flight.values()
            if task.twin is None and task.opinions is None and task.stage.items
            and now - task.since > max(SLOW_MIN, SLOW * task.stage.seconds * task.token.count)
        ]  # fmt: skip
        for task in sorted(slow, key=lambda task: task.since):
            able = [control for control in idle if self._may_take_over(control, task)]
            if not able:
                continue
            control = able[0]
            idle.remove(control)
            self.speculated += 1
            twin = Task(next(self._numbers), task.stage, task.mode, task.token, task.frame, task.place)
            twin.after, twin.only, twin.retries, twin.entry = task.after, task.only, task.retries, task.entry
            twin.attempts, twin.causes = task.attempts, list(task.causes)
            twin.twin, task.twin = task, twin
            self._send(control, twin)

    def _may_take_over(self, control: Control, task: Task) -> bool:
        """Whether a worker may see a task, and takes and gives what the one does that has it."""
        has = task.control
        if has is None or (control.plain and not has.plain) or (has.trusted and not control.trusted):
            return False
        return self.security.may_see(control.place, task.labels)

    def _alone(self, task: Task) -> None:
        """A task has an end: nobody waits for its twin any more."""
        twin = self._part(task)
        if twin is not None and twin.control is not None and twin.number in twin.control.in_flight:
            self._deadlines.pop(twin.number, None)
            self._stop(twin.control, twin.number)

    @staticmethod
    def _part(task: Task) -> Task | None:
        """Each of a task and its twin, which is returned, goes on as if there was no other."""
        twin = task.twin
        if twin is not None:
            task.twin = twin.twin = None
        return twin

    def _for(self, control: Control) -> Task | None:
        """The task that this worker is to have: of those that it may see, the one that came first."""
        for task in self._second:
            if self._may_judge(control, task):
                self._second.remove(task)
                return task
        found: deque[Task] | None = None
        for labels, queue in self._ready.items():
            if not queue or (labels and not self.security.may_see(control.place, labels)):
                continue
            if queue[0].attempts and control.in_flight:
                continue
            if found is None or queue[0].number < found[0].number:
                found = queue
        return found.popleft() if found is not None else None

    def _may_judge(self, control: Control, task: Task) -> bool:
        """Whether a worker can compute a task of the sample that others have computed."""
        if not self.security.may_see(control.place, task.labels):
            return False
        return all(opinion.control is not control for opinion in task.opinions or ())

    def decide(self, control: Control, marks: Marks, labels: frozenset[str]) -> Decision:
        """How something goes to a worker."""
        key = (marks, labels)
        decision = control.decisions.get(key)
        if decision is None:
            decision = self.security.decide(control.place, control.weakest, marks, labels)
            control.decisions[key] = decision
        return decision

    def _send(self, control: Control, task: Task) -> None:
        staged = task.stage
        sealed = self.decide(control, task.marks, task.labels).sealed
        flags = _protocol.SEAL if sealed else 0
        parts = task.token.parts
        if control.plain:
            try:
                parts = _plain.dump(task.token.items())
            except _plain.NotPlain as error:
                what = f"{error}, and {control} takes nothing else: it was pinned to code, and unpickles nothing"
                return self._fail(task, StageError(what))
            except Exception as error:
                return self._fail(task, not_loaded(error))
            flags |= _protocol.PLAIN
        task.pickled = control.trusted
        if not task.pickled:
            flags |= _protocol.PLAIN_RESULT
        if task.only is not None:
            flags |= _protocol.ONLY
            parts = [*parts, task.only.tobytes()]
        if task.token.size > self._largest:
            what = (
                f"an item for stage {staged.name!r} has {task.token.size} bytes, and {self._largest} are the most that "
                "a token may have; give it in parts, leave it in a file, or let the farm take more (largest=...)"
            )
            return self._fail(task, FarmError(what))
        task.control = control
        # Of what nothing is known a worker gets one at a time.
        task.expected = staged.seconds * task.token.count if staged.items else LONG
        task.since = time.monotonic()
        if self._timeout is not None:
            self._deadlines[task.number] = task
            task.deadline = task.since + self._timeout
        word = _protocol.task_word(staged.number, task.mode, flags)
        try:
            if staged.number not in control.staged:
                code = self.decide(control, staged.marks, NO_LABELS)
                control.stage(staged.number, staged.parts, code.sealed)
            control.send(task, word, parts, sealed)
        except Error as error:
            # It is gone; what it had goes to others as soon as the manager has said so.
            control.joined = False
            control.in_flight.setdefault(task.number, task)
            self.expelled.append((control, str(error), False))
        return None

    # --- what comes back

    def result(self, control: Control, number: int, word: int, parts: list[Any]) -> None:
        """A worker returned a task."""
        task = control.take_back(number)
        if task is None:
            # Of a task that was given up, or given to somebody else: the worker is through with it, or left it off.
            return self._left_off(control, number)
        self._deadlines.pop(number, None)
        seconds = (word >> _protocol.TIME_SHIFT) * 1e-6
        control.returned(seconds)
        count = task.token.count if task.mode in (Mode.EACH, Mode.CALL) else 1
        if word & _protocol.NOT_LOADED:
            text = bytes(parts[0]).decode(errors="replace") if parts else "the stage cannot be loaded"
            return self._fail(task, StageError(f"{text} (worker {control})"))
        task.stage.took(seconds, task.token.count, task.token.size)
        self.busy += seconds
        self.passage.took(seconds, sum([memoryview(part).nbytes for part in parts]))
        if task.pickled and not control.trusted:
            # It was when it got the task.
            return self._again(task)
        try:
            failures = self._failures(task, control, parts, count) if word & _protocol.SOME_FAILED else None
            if task.mode is Mode.TEST:
                token = Token((), 1 if word & _protocol.YES else 0, task.token.labels)
            elif task.pickled:
                token = Token(parts, count, task.labels_out)
            else:
                items = _plain.load(parts)
                if type(items) is not list or len(items) != count:
                    raise ValueError("another number of items than it was given")
                token = Token.of(items, task.labels_out)
        except Exception as error:
            self.expelled.append((control, f"it sent what is no result: {error}", True))
            return self._again(task)
        self._alone(task)
        if failures and task.retries > 0:
            task.retries -= 1
            self.retried += 1
            return self._again(task)
        if task.opinions is not None or self._verifier.picks():
            opinion = self._weigh(task, Opinion.of(control, token, failures))
            if opinion is None:
                return None
            token, failures = opinion.token, opinion.failures
        if failures:
            control.failed += len(failures)
        if task.token.failures:
            failures = {**task.token.failures, **(failures or {})}
        token.failures = failures
        if self.records is not None and task.entry is not None and not failures:
            try:
                self.records.record(task.entry, token)
            except JournalError as error:
                self._fail(task, error)
                raise
        self.fire(task.after, token, task.frame, task.place)
        return None

    def _weigh(self, task: Task, opinion: Opinion) -> Opinion | None:
        """A result of the sample has come; the one that holds, if that is known by now."""
        opinions = task.opinions = [*(task.opinions or ()), opinion]
        verdict = Verifier.judge(opinions)
        stage = task.stage.name
        for control in verdict.wrong:
            self.expelled.append((control, f"it gave another result of stage {stage!r} than others did", True))
        if verdict.opinion is not None:
            self.verified += 1
            return verdict.opinion
        able = (control for control in self.controls.values() if control.joined and self._may_judge(control, task))
        if any(able):
            self._second.append(task)
            return None
        if len(opinions) == 1:
            # There is nobody to ask.
            return opinion
        differ = " and ".join(str(opinion.control) for opinion in opinions)
        what = f"{differ} gave different results of stage {stage!r}, and there is no other worker to say who is right"
        self._fail(task, ResultsDiffer(what))
        return None

    def _failures(self, task: Task, control: Control, parts: list[Any], count: int) -> dict[int, Failure]:
        listed = _plain.load([parts.pop(0)])
        failures = {}
        for at, (what, text, pickled) in listed.items():
            if not 0 <= at < count:
                raise ValueError("the failure of an item that it was not given")
            error: BaseException | None = None
            if pickled is not None and task.pickled:
                # Of a class that is not here it comes as text.
                with contextlib.suppress(Exception):
                    error = load([pickled])
            if not isinstance(error, BaseException):
                error = RemoteError(f"{what} (worker {control})")
            error.__cause__ = RemoteTraceback(text)
            failures[at] = Failure(error)
        return failures

    def _again(self, task: Task) -> None:
        """A task goes to the next worker that has room, if its twin is not at one."""
        if self._part(task) is not None:
            return
        task.control = None
        task.since = 0.0
        if task.opinions:
            self._second.append(task)
        else:
            self._queue(task).appendleft(task)

    def _fail(self, task: Task, error: BaseException) -> None:
        """All items of a task have failed."""
        self._alone(task)
        failure = Failure(error)
        count = task.token.count if task.mode in (Mode.EACH, Mode.CALL) else 1
        failed = Token.of([None] * count, task.labels_out)
        failed.failures = dict.fromkeys(range(count), failure)
        failed.failures.update(task.token.failures or {})
        self.fire(task.after, failed, task.frame, task.place)

    # --- what goes wrong

    def lost(self, control: Control, why: str) -> None:
        """A worker is gone: what it had goes to others. The task that it was at may be what ended it."""
        tasks = list(control.in_flight.values())
        control.in_flight.clear()
        control.load = 0.0
        for task in reversed(tasks):
            self._deadlines.pop(task.number, None)
            self._grace.pop(task.number, None)
            twin = self._part(task)
            if twin is None:
                self.recovered += 1
            if task is tasks[0]:
                # A twin goes on, and what ended this worker may end that one's.
                (twin or task).attempts += 1
                (twin or task).causes.append(f"{control}: {why}")
            if twin is not None:
                continue
            if task is not tasks[0]:
                self._again(task)
            elif task.mode is Mode.EACH and task.token.count > 1:
                self._singly(task)
            elif task.attempts >= self._attempts:
                listed = "; ".join(task.causes)
                what = (
                    f"a task of stage {task.stage.name!r} ended every worker that it was given to, {task.attempts} of "
                    f"them, and is given to no other ({listed})"
                )
                self._fail(task, PoisonedTask(what))
            else:
                self._again(task)

    def abandon(self, error: BaseException) -> None:
        """Nobody computes any more: whoever waits for a task hears why."""
        while not self.is_idle():
            left = [*self._second, *self._known, *(task for queue in self._ready.values() for task in queue)]
            left += [task for control in self.controls.values() for task in control.in_flight.values()]
            self._second.clear()
            self._known.clear()
            for queue in self._ready.values():
                queue.clear()
            for control in self.controls.values():
                control.in_flight.clear()
            for task in left:
                if self._part(task) is None:
                    self._fail(task, error)

    def _singly(self, task: Task) -> None:
        """Each item of a task becomes a task: one of them may have ended a worker."""
        items, failures = task.token.outcomes()
        gathering = Gathering(self, task.after, task.frame, task.place, task.token.count)
        for at, item in enumerate(items):
            single = Task(
                next(self._numbers), task.stage, task.mode, Token.of([item], task.token.labels), gathering, at
            )
            if at in failures:
                single.token.failures = {0: failures[at]}
                gathering.deliver(single.token, at)
                continue
            single.attempts, single.causes = task.attempts, list(task.causes)
            self._again(single)

    def tick(self, patience: float) -> None:
        """Looks at the clock: tasks that take too long, workers that do not leave off, tasks that nobody may see."""
        now = time.monotonic()
        for number, task in list(self._deadlines.items()):
            control = task.control
            if now < task.deadline or control is None:
                continue
            del self._deadlines[number]
            if number not in control.in_flight:
                continue
            self._stop(control, number)
            what = (
                f"a task of stage {task.stage.name!r} took longer than {self._timeout} s on {control}, and was given up"
            )
            self._fail(task, TaskTimeout(what))
        for number, (until, control) in list(self._grace.items()):
            if now > until:
                del self._grace[number]
                self.expelled.append((control, "it does not leave off a task that nobody waits for any more", False))
        # What fails may fire what needs a queue of its own.
        for labels, queue in list(self._ready.items()):
            if not labels or not queue:
                continue
            if any(self.security.may_see(control.place, labels) for control in self.controls.values()):
                for task in queue:
                    task.since = 0.0
                continue
            for task in list(queue):
                task.since = task.since or now
                if now - task.since > patience:
                    queue.remove(task)
                    cleared = sorted(host for host, has in self.security.clearance.items() if labels <= has)
                    where = " or ".join(cleared) or "a host that is cleared for it"
                    what = (
                        f"a task of stage {task.stage.name!r} has data labelled {', '.join(sorted(labels))}, which no "
                        f"worker may see; it waited {patience:g} s for one on {where}"
                    )
                    self._fail(task, NotCleared(what))
