"""Which keys of a cluster nobody labelled: the scheduler decides it when a graph comes, and workers hear it with tasks.

    client ── graph ──> scheduler: is it labelled? what does each task depend on?
                          │ compute-task, with the mark in the task's annotations
                          ▼
                        worker: marked, and computed here ──> its replies with this key may go unsealed

A key is marked if it is positively known that neither it nor anything that it was made of has a label. All else is
sealed: data that was scattered or fetched from another worker, actors, and what a scheduler says nothing of.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from distributed import Scheduler, SchedulerPlugin, Worker, WorkerPlugin
from distributed.protocol import Serialized

Unlabelled = Callable[[Iterable[Any]], bool]
"""Whether nobody labelled any of these keys."""

ANNOTATION = "gambeson"
"""`dask.annotate(gambeson="privacy")`: whatever stands there, it asks for protection."""
MARK = "gambeson-unlabelled"
"""Among a task's annotations: true if it and all that it was made of is known to have no label, false if not."""
NAME = "gambeson-labels"
"""What the plugins are called."""
SEAL = "gambeson-seal"
"""What workers are told of keys that were marked and are so no longer."""
# As pickle has them as strings of their own, with their length in front. A graph comes with the annotations of its
# layers, and what Dask makes of it here loses them where it fuses tasks. So what came is searched, and labelled whole.
_WORDS = re.compile(b"|".join(bytes([len(word)]) + rb"(?:\0\0\0)?" + word.encode() for word in (ANNOTATION, MARK)))

logger = logging.getLogger("distributed.comm.gambeson")


async def install(server: object, chooses: bool) -> Unlabelled | None:
    """Has a scheduler or worker, which begins to listen, keep labels; what tells which keys have none.

    Workers do so always: a scheduler may tell them of labels. A scheduler does if it `chooses` between links.
    """
    if isinstance(server, Worker):
        own = server.plugins.get(NAME)
        if own is None:
            own = WorkerLabels(server)
            await server.plugin_add(own, name=NAME)
        return own.unlabelled if chooses else None
    if isinstance(server, Scheduler) and chooses:
        kept = server.plugins.get(NAME)
        if kept is None:
            if not hasattr(server, "_create_taskstate_from_graph"):
                logger.warning(
                    "gambeson:// seals everything: it does not know where this release of Dask takes in graphs"
                )
                return None
            kept = SchedulerLabels(server)
        unlabelled: Unlabelled = kept.unlabelled
        return unlabelled
    return None


@dataclass(frozen=True)
class _Graph:
    """What is being taken in."""

    labelled: bool
    defines: frozenset[Any]
    """The keys that it says how to compute."""
    within: Any
    """The key of the task that submitted it, if one did."""


class SchedulerLabels(SchedulerPlugin):
    """Marks tasks as graphs come."""

    name = NAME

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._graph: _Graph | None = None
        self._update_graph = scheduler.update_graph
        self._create = scheduler._create_taskstate_from_graph
        self._update_data = scheduler.update_data
        scheduler.stream_handlers["update-graph"] = self._graph_came
        scheduler._create_taskstate_from_graph = self._taken_in
        scheduler.update_data = scheduler.handlers["update_data"] = self._scattered
        scheduler.add_plugin(self)

    def unlabelled(self, keys: Iterable[Any]) -> bool:
        tasks = self._scheduler.tasks
        return all(_mark(tasks.get(key)) is True for key in keys)

    async def _graph_came(self, **said: Any) -> None:
        if is_labelled(said.get("expr_ser")):
            said["annotations"] = {ANNOTATION: "privacy", **(said.get("annotations") or {})}
        await self._update_graph(**said)

    def _taken_in(self, **said: Any) -> Any:
        labelled = not {ANNOTATION, MARK}.isdisjoint(said.get("global_annotations") or {})
        self._graph = _Graph(labelled, frozenset(said["dsk"]), said.get("submitting_task"))
        try:
            # It calls the plugins when the tasks are there and before any is sent to a worker.
            return self._create(**said)
        finally:
            self._graph = None

    def update_graph(self, scheduler: Any, *, tasks: Iterable[Any], **_: Any) -> None:
        if (graph := self._graph) is None:
            return
        found = [scheduler.tasks[key] for key in tasks]
        new = {task for task in found if _mark(task) is None}
        inside = graph.within is not None and _mark(scheduler.tasks.get(graph.within)) is not True
        if graph.labelled or inside:
            self._label([*new, *(task for task in found if task.key in graph.defines)])
        self._label([task for task in new if not _can_be_marked(task, new)])
        for task in new:
            if _mark(task) is None:
                _set_mark(task, True)

    def _label(self, tasks: list[Any]) -> None:
        """Takes marks away, also from all that is made of them."""
        marked = set()
        while tasks:
            task = tasks.pop()
            if _mark(task) is False:
                continue
            if _mark(task):
                marked.add(task.key)
            _set_mark(task, False)
            tasks.extend(task.dependents)
        if marked:
            logger.warning(
                "%d keys are labelled that were not when they came; data of theirs is sealed from now on", len(marked)
            )
            for address in list(self._scheduler.workers):
                # Others have no link that is not sealed.
                if address.startswith("gambeson://"):
                    self._scheduler.worker_send(address, {"op": SEAL, "keys": list(marked)})

    def _scattered(self, *, who_has: Any, **rest: Any) -> Any:
        """Data comes from elsewhere, of which nobody says whether it is sensitive."""
        tasks = self._scheduler.tasks
        self._label([tasks[key] for key in who_has if key in tasks])
        return self._update_data(who_has=who_has, **rest)


class WorkerLabels(WorkerPlugin):
    """Remembers which data was computed here by marked tasks."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._unlabelled: set[Any] = set()
        worker.stream_handlers[SEAL] = self._seal

    def unlabelled(self, keys: Iterable[Any]) -> bool:
        return self._unlabelled.issuperset(keys)

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        task = self._worker.state.tasks.get(key)
        # A task that was cancelled meanwhile comes from another state: its key may have got a label since.
        computed = start in ("executing", "long-running") and finish == "memory" and task is not None
        if computed and task.state == "memory" and _mark(task) is True:
            self._unlabelled.add(key)
        else:
            self._unlabelled.discard(key)

    def _seal(self, keys: Iterable[Any]) -> None:
        self._unlabelled.difference_update(keys)
        for key in keys:
            if (task := self._worker.state.tasks.get(key)) is not None:
                _set_mark(task, False)


def is_labelled(graph: Any) -> bool:
    """Whether a layer of a graph, as its client sent it, is labelled; or it cannot be looked at."""
    if not isinstance(graph, Serialized) or graph.header.get("serializer") != "pickle":
        return True
    if any(graph.header.get("compression") or ()):
        return True
    return _WORDS.search(b"".join(graph.frames)) is not None


def _can_be_marked(task: Any, new: set[Any]) -> bool:
    """Whether a task is to be computed, and of what is marked, or becomes so."""
    if task.actor or task.run_spec is None or task.state != "released":
        return False
    return all(one in new or _mark(one) is True for one in task.dependencies)


def _mark(task: Any) -> bool | None:
    return None if task is None else (task.annotations or {}).get(MARK)


def _set_mark(task: Any, value: bool) -> None:
    # A new one: the old one may be in a message that waits to go out.
    task.annotations = {**(task.annotations or {}), MARK: value}
