"""Results as a table."""

from __future__ import annotations

from gambeson._native import NativeTable


class Table:
    """Columns of equal length, to be taken by whatever speaks Arrow.

    `polars.DataFrame(table)`, `pyarrow.table(table)` and `pandas.DataFrame.from_arrow(table)` take it as it is; without
    any of them `table.to_dict()` has lists, which `pandas.DataFrame` takes too.

    A sweep's table has a row for each run and flow. Its columns, after the swept keys:

    - `seed`, `nodes` and the `flow`'s name;
    - `packets` that were measured, and of their latencies `mean_ns`, `deviation_ns`, `min_ns`, `p50_ns`, `p99_ns` and
      `max_ns`, in nanoseconds;
    - `accepted`, the share of a link's rate that arrived at each node, 0 to 1, and `links` that a packet crossed, on
      average; both null in a replay;
    - `jobs_ended_us`, null where no job ran or one did not end, and `simulated_us`, in microseconds;
    - packets `sent`, `arrived`, `dropped` and `leaked`, and `traps`;
    - `acknowledged` packets, and honest ones that receivers `refused`; of an attack's, null where there is none, those
      `attack_overheard`, `attack_readable`, `attack_sent`, `attack_taken`, `attack_refused` and `attack_traced` to it;
    - `lookups` of keys and their `hit_rate`, 0 to 1, null where there were none;
    - `busiest_link`, the share of time that it was sending, 0 to 1, and `events` of the simulation;
    - `version`, and `experiment`: all that the row came from, as JSON.
    """

    def __init__(self, native: NativeTable) -> None:
        self._native = native

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return self._native.names()

    def to_dict(self) -> dict[str, list[str] | list[int] | list[float | None]]:
        """Each column as a list of `len(table)` values."""
        return self._native.columns()

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._native)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's stream of record batches in C, in a PyCapsule."""
        return self._native.stream(requested_schema)

    def __repr__(self) -> str:
        return f"<Table of {len(self)} rows: {', '.join(self.columns)}>"
