"""What a farm raises."""

from __future__ import annotations

from dataclasses import dataclass


class FarmError(Exception):
    """A farm cannot do what it was asked, and says why."""


class StageError(FarmError):
    """A stage cannot be staged, or not be loaded where it was staged to."""


class JournalError(FarmError):
    """A journal cannot be used, or is not as it was written."""


class WorkersLost(FarmError):
    """There is no worker left, and none can be recruited."""


class NotCleared(FarmError):
    """No worker may see the data of a task."""


class PoisonedTask(FarmError):
    """A task ended every worker that it was given to."""


class ResultsDiffer(FarmError):
    """Workers gave different results of one task, and nobody can say who is right (`verify`)."""


class TaskTimeout(FarmError, TimeoutError):
    """A task took longer than it may."""


class RemoteError(FarmError):
    """What a task raised on its worker, as text: of a worker that is not trusted to send more, or an exception that
    cannot be pickled."""


class RemoteTraceback(Exception):
    """Where an exception was raised on a worker: its cause."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


@dataclass(frozen=True)
class Failure:
    """What stands for a result that is none (`errors="return"`)."""

    error: BaseException
    """What was raised, its cause a `RemoteTraceback` that says where."""

    def __bool__(self) -> bool:
        return False
