"""A task farm that seals what is sensitive: nestable skeletons over sealed links.

from gambeson import farm

@farm.sensitive_data("inout", label="patients")
def render(image): ...

with farm.Manager(farm.pipeline(load, render), parallelism=10) as manager:
    for picture in manager.run(paths):
        ...
    print(manager.explain())
"""

try:
    import cloudpickle as _cloudpickle  # noqa: F401
    import msgpack as _msgpack  # noqa: F401
except ImportError as _error:
    _what = f"gambeson.farm needs {_error.name}, which is not installed: python -m pip install cloudpickle msgpack"
    raise ImportError(_what, name=_error.name) from None

from gambeson.farm._annotation import (
    SENSITIVE,
    Labelled,
    declassifies,
    labelled,
    sensitive_code,
    sensitive_data,
)
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
    WorkersLost,
)
from gambeson.farm._executor import Executor
from gambeson.farm._explain import Explanation
from gambeson.farm._graph import Graph
from gambeson.farm._joining import Joining, joining
from gambeson.farm._journal import Journal
from gambeson.farm._manager import Manager, run
from gambeson.farm._recruit import Recruiter, daemon, local, mpi, slurm, ssh
from gambeson.farm._security import Security
from gambeson.farm._skeleton import Skeleton, farm, iterate, map, pipeline, reduce, scan, stage
from gambeson.farm._stations import Stations, stations
from gambeson.farm._stats import Stats
from gambeson.farm._stream import files, lines, messages

__all__ = [
    "SENSITIVE",
    "Executor",
    "Explanation",
    "Failure",
    "FarmError",
    "Graph",
    "Joining",
    "Journal",
    "JournalError",
    "Labelled",
    "Manager",
    "NotCleared",
    "PoisonedTask",
    "Recruiter",
    "RemoteError",
    "RemoteTraceback",
    "ResultsDiffer",
    "Security",
    "Skeleton",
    "StageError",
    "Stations",
    "Stats",
    "TaskTimeout",
    "WorkersLost",
    "daemon",
    "declassifies",
    "farm",
    "files",
    "iterate",
    "joining",
    "labelled",
    "lines",
    "local",
    "map",
    "messages",
    "mpi",
    "pipeline",
    "reduce",
    "run",
    "scan",
    "sensitive_code",
    "sensitive_data",
    "slurm",
    "ssh",
    "stage",
    "stations",
]
