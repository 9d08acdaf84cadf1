"""The simulator of a fabric whose adapters seal what they send: what `gambeson sim` does, from Python.

    from gambeson import sim

    mesh = sim.load("mesh.toml")                      # or TOML text, or a dict
    print(mesh.run().flows[0].latency.mean_ns)

    results = sim.sweep(mesh, {"traffic.0.load": [0.1, 0.2, 0.3], "security.cache.entries": [4, 16]})
    frame = polars.DataFrame(results.table())         # or pyarrow.table(...), or pandas.DataFrame.from_arrow(...)

    print(sim.advise("job.goal").advice)

Equal experiments with equal seeds give equal results, here, on the command line and on any executor. Errors are
exceptions with the command line's sentences: `ExperimentError` and `TraceError` (both `ValueError`), `StuckError`, and
the system's own (`FileNotFoundError` and so on).
"""

from gambeson._native import ExperimentError, StoppedError, StuckError, TraceError
from gambeson.sim._advice import Advice, CacheSize, Measured, TraceSummary, advise, trace
from gambeson.sim._experiment import Experiment, Source, load
from gambeson.sim._outcome import Attack, Flow, JobEnd, Latency, Outcome, Refusals
from gambeson.sim._sweep import Results, sweep
from gambeson.sim._table import Table

__all__ = [
    "Advice",
    "Attack",
    "CacheSize",
    "Experiment",
    "ExperimentError",
    "Flow",
    "JobEnd",
    "Latency",
    "Measured",
    "Outcome",
    "Refusals",
    "Results",
    "Source",
    "StoppedError",
    "StuckError",
    "Table",
    "TraceError",
    "TraceSummary",
    "advise",
    "load",
    "sweep",
    "trace",
]
