"""The pool of fireable instructions, and who computes which (secure-muskel paper, section 2).

Everything here happens under the manager's lock. A task goes to a worker only when that has room for it, and the next
one when one returns: whoever is faster gets more.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from array import array
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gambeson.farm import _protocol
from gambeson.farm._bounds import Bounds
from gambeson.farm._control import LONG, Control
from gambeson.farm._copies import taken_over
from gambeson.farm._errors import (
    Failure,
    JournalError,
    NotCleared,
    PoisonedTask,
    ResultsDiffer,
    StageError,
    TaskTimeout,
)
from gambeson.farm._exchange import read, written
from gambeson.farm._frames import Frame, Gathering, Looping, fold, spread
from gambeson.farm._graph import Apply, Fold, Instruction, Loop, Spread
from gambeson.farm._limits import Limits
from gambeson.farm._protocol import Mode
from gambeson.farm._ready import Ready
from gambeson.farm._security import Security
from gambeson.farm._skeleton import Stage
from gambeson.farm._staging import Staging
from gambeson.farm._task import Staged, Task
from gambeson.farm._token import NO_LABELS, Token
from gambeson.farm._verify import Opinion, Verifier
from gambeson.link import Error

if TYPE_CHECKING:
    from gambeson.farm._journal import Records

RECALL = 5e-3
"""Seconds of results out of the journal that are gone on with before others get their turn."""


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
        self.controls: dict[int, Control] = {}
        self.busy = 0.0
        """Seconds that tasks took."""
        self.expelled: list[tuple[Control, str, bool]] = []
        """Workers that the manager has to end, why, and whether their hosts are not to be trusted with another one."""
        self.retried = 0
        self.verified = 0
        self.recovered = 0
        self.recalled = 0
        self.speculated = 0
        self.records = records
        self.staging = Staging(stage)
        self.bounds = Bounds(self.staging, chunk, records is not None, retries > 0, timeout is not None)
        self._wake = wake
        self._parallelism = parallelism
        self._attempts = attempts
        self._retries = retries
        self._largest = largest
        self._speculate = speculate
        self._verifier = Verifier(verify)
        self._ready = Ready(security)
        self._numbers = itertools.count(1)
        self._limits = Limits(timeout)
        self._cancelled: deque[Frame] = deque()

    @property
    def security(self) -> Security:
        """The rules that hold."""
        return self._ready.security

    # --- what fires

    def parallelism(self) -> int:
        """How many workers there are, at least one."""
        return max(1, sum(control.joined for control in self.controls.values()))

    def breadth(self) -> int:
        """How many workers what is folded is made ready for: the same number in each run."""
        return self._parallelism

    def chunk(self, instruction: Instruction, available: int) -> int:
        """How many items go to a worker together that enters at this instruction."""
        return self.bounds.together(instruction, available, self.parallelism())

    def fire(self, instruction: Instruction | None, token: Token, frame: Frame, place: int) -> None:
        """A token has come to an instruction; without one, to the end of its graph."""
        if instruction is None:
            frame.deliver(token, place)
        elif isinstance(instruction, Apply):
            self.submit(instruction, self.staging.find(instruction.functions), Mode.EACH, token, frame, place)
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
                self._ready.known.append(task)
                if len(self._ready.known) == 1:
                    self._wake()
                return task
        self._ready.add(task)
        return task

    def recall(self) -> None:
        """Goes on with what the journal has, for some time.

        Raises `JournalError`.
        """
        until, known = time.monotonic() + RECALL, self._ready.known
        while known:
            task = known[0]
            assert self.records is not None and task.entry is not None
            token = self.records.recall(task.entry, task.labels_out)
            known.popleft()
            self.recalled += 1
            self.fire(task.after, token, task.frame, task.place)
            if time.monotonic() > until and known:
                # Others want the lock.
                self._wake()
                return

    def forget_code(self) -> None:
        """Workers forget the stages that are not used any more."""
        for number, marks in self.staging.forgotten():
            for control in self.controls.values():
                if control.joined:
                    with contextlib.suppress(Error):
                        control.forget(number, control.decide(self.security, marks, NO_LABELS).sealed)

    def forget(self, task: Task) -> bool:
        """Nobody wants a task any more. Whether no worker has it."""
        return self._ready.remove(task)

    def cancel(self, run: Frame) -> None:
        """Nobody wants what comes of a run any more. Without the manager's lock: see `drop`."""
        self._cancelled.append(run)

    def drop(self) -> None:
        """What waits of runs that were cancelled is forgotten, and workers leave off what they are at."""
        while self._cancelled:
            run = self._cancelled.popleft()
            self._ready.drop(run)
            for control in self.controls.values():
                for number in [number for number, task in control.in_flight.items() if task.frame.run is run]:
                    self._limits.stop(control, number)

    def protect(self, security: Security) -> None:
        """Other rules hold from now on: what waits is judged anew, and workers leave off what they may not see."""
        for control in self.controls.values():
            control.decisions.clear()
            control.trusted = security.unpickles(control.place)
            for task in list(control.in_flight.values()):
                if not security.may_see(control.place, task.labels):
                    self._limits.stop(control, task.number)
                    self._anew(task)
        self._ready.judge(security)

    def agreed(self, control: Control) -> None:
        """A worker is through with what it had when it was told of another policy: what has not come back is lost."""
        for number in control.unsure.popleft():
            task = control.take_back(number)
            if task is not None:
                self._anew(task)
            else:
                self._limits.left_off(control, number)

    def _anew(self, task: Task) -> None:
        """A task goes to the next worker by another number: who still has it may say something of the first."""
        self._limits.end(task.number)
        task.number = next(self._numbers)
        self._again(task)

    def waiting(self) -> int:
        """Fireable instructions that no worker has."""
        return len(self._ready)

    def room(self, first: Instruction, memory: int) -> tuple[int, int, int]:
        """How many more tasks may enter at this instruction so that no worker waits for one; how many of a stream there
        may be in all; and how many items each has.
        """
        visit, most, count = self.bounds.room(first, memory, self.parallelism())
        return visit - self.waiting(), most, count

    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.waiting() and not any(control.in_flight for control in self.controls.values())

    # --- what goes out

    def dispatch(self) -> None:
        """Gives tasks to workers that have room, first to who has the least to do."""
        while self._ready.wants_workers():
            # A task's time runs from when it is sent: none waits behind another then.
            ahead = self._limits.timeout is None
            free = [control for control in self.controls.values() if control.has_room(ahead)]
            free.sort(key=lambda control: (len(control.in_flight), control.load))
            for control in free:
                task = self._ready.take(control)
                if task is not None:
                    self._send(control, task)
                    break
            else:
                break
        if self._speculate:
            for control, task in taken_over(self.controls.values(), self.security, time.monotonic()):
                self.speculated += 1
                self._send(control, task.copy(next(self._numbers)))

    def _alone(self, task: Task) -> None:
        """A task has an end: nobody waits for its twin any more."""
        twin = task.part()
        if twin is not None and twin.control is not None and twin.number in twin.control.in_flight:
            self._limits.stop(twin.control, twin.number)

    def _send(self, control: Control, task: Task) -> None:
        said = written(control, task, self.security, self._largest)
        if isinstance(said, BaseException):
            return self._fail(task, said)
        staged = task.stage
        task.control = control
        # Of what nothing is known a worker gets one at a time.
        task.expected = staged.seconds * task.token.count if staged.items else LONG
        self._limits.begin(task)
        try:
            if staged.number not in control.staged:
                code = control.decide(self.security, staged.marks, NO_LABELS)
                control.stage(staged.number, staged.parts, code.sealed)
            control.send(task, *said)
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
            return self._limits.left_off(control, number)
        self._limits.end(number)
        seconds = (word >> _protocol.TIME_SHIFT) * 1e-6
        control.returned(seconds)
        count = task.token.count if task.mode in (Mode.EACH, Mode.CALL) else 1
        if word & _protocol.NOT_LOADED:
            text = bytes(parts[0]).decode(errors="replace") if parts else "the stage cannot be loaded"
            return self._fail(task, StageError(f"{text} (worker {control})"))
        task.stage.took(seconds, task.token.count, task.token.size)
        self.busy += seconds
        self.bounds.passage.took(seconds, sum([memoryview(part).nbytes for part in parts]))
        if task.pickled and not control.trusted:
            # It was when it got the task.
            return self._again(task)
        try:
            token, failures = read(task, control, word, parts, count)
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
        there = [control for control in self.controls.values() if control.joined]
        if any(self._ready.may_judge(control, task) for control in there):
            self._ready.add_again(task)
            return None
        if len(opinions) == 1:
            # There is nobody to ask.
            return opinion
        differ = " and ".join(str(opinion.control) for opinion in opinions)
        what = f"{differ} gave different results of stage {stage!r}, and there is no other worker to say who is right"
        self._fail(task, ResultsDiffer(what))
        return None

    def _again(self, task: Task) -> None:
        """A task goes to the next worker that has room, if its twin is not at one."""
        if task.part() is None:
            self._ready.add_again(task)

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
            self._limits.end(task.number)
            twin = task.part()
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
            left = self._ready.clear()
            left += [task for control in self.controls.values() for task in control.in_flight.values()]
            for control in self.controls.values():
                control.in_flight.clear()
            for task in left:
                if task.part() is None:
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
        for control, task in self._limits.late(now):
            what = (
                f"a task of stage {task.stage.name!r} took longer than {self._limits.timeout} s on {control}, and was "
                "given up"
            )
            self._fail(task, TaskTimeout(what))
        for control in self._limits.hung(now):
            self.expelled.append((control, "it does not leave off a task that nobody waits for any more", False))
        for task in self._ready.overdue(self.controls.values(), patience, now):
            labels = task.labels & self.security.restricted
            cleared = sorted(host for host, has in self.security.clearance.items() if labels <= has)
            where = " or ".join(cleared) or "a host that is cleared for it"
            what = (
                f"a task of stage {task.stage.name!r} has data labelled {', '.join(sorted(labels))}, which no "
                f"worker may see; it waited {patience:g} s for one on {where}"
            )
            self._fail(task, NotCleared(what))
