"""What is protected, and by which rule."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gambeson.farm._graph import Apply, Graph
from gambeson.farm._token import NO_LABELS

if TYPE_CHECKING:
    from gambeson.farm._pool import Pool


@dataclass(frozen=True)
class Line:
    """A stage on a worker."""

    stage: str
    worker: str
    host: str
    code: str
    """How its code goes there: `sealed`, or `authenticated`."""
    code_rule: str
    data: str
    """How unlabelled items and their results go: `sealed`, `authenticated`, or `never`."""
    data_rule: str
    results: str
    """How results are read: `pickle`, or `plain data`."""


@dataclass(frozen=True)
class Explanation:
    """For each stage and worker, what is protected and by which rule."""

    lines: list[Line]
    labels: dict[str, list[str]]
    """The labels that items have in front of each stage, beside their own."""

    def records(self) -> list[dict[str, Any]]:
        """For machines."""
        return [asdict(line) for line in self.lines]

    def __str__(self) -> str:
        if not self.lines:
            return "There are no workers yet."
        out = []
        for stage in dict.fromkeys(line.stage for line in self.lines):
            before = self.labels.get(stage, [])
            out.append(f"{stage}" + (f" (data: {', '.join(before)})" if before else ""))
            for line in (line for line in self.lines if line.stage == stage):
                out.append(f"  {line.worker} on {line.host}")
                out.append(f"    code     {line.code}: {line.code_rule}")
                out.append(f"    data     {line.data}: {line.data_rule}")
                out.append(f"    results  as {line.results}")
        return "\n".join(out)


def explain(pool: Pool, graph: Graph) -> Explanation:
    """Explains a farm as it is now."""
    before: dict[int, frozenset[str]] = {}
    _walk(graph.first, NO_LABELS, before)
    by_stage: dict[object, frozenset[str]] = {
        tuple(id(stage) for stage in stages): before.get(instruction.number, NO_LABELS)
        for instruction in graph.instructions
        for stages in [instruction.stages() if isinstance(instruction, Apply) else instruction.stages()[:1]]
        if stages
    }
    lines: list[Line] = []
    labels: dict[str, list[str]] = {}
    for key, staged in pool.staging.all():
        incoming = by_stage.get(key, NO_LABELS)
        seen = staged.marks.labels_in(incoming) | staged.marks.labels_out(incoming)
        labels[staged.name] = sorted(seen)
        for control in pool.controls.values():
            code = control.decide(pool.security, staged.marks, NO_LABELS)
            data = control.decide(pool.security, staged.marks, seen)
            how, rule = ("sealed" if data.sealed else "authenticated"), data.rule
            if not pool.security.may_see(control.place, seen):
                how, rule = "never", f"the host is not cleared for {', '.join(sorted(seen & pool.security.restricted))}"
            lines.append(
                Line(
                    staged.name,
                    control.place.name,
                    control.place.host,
                    "sealed" if code.sealed else "authenticated",
                    code.rule,
                    how,
                    rule,
                    "pickle" if control.trusted else "plain data, arrays and Arrow",
                )
            )
    return Explanation(lines, labels)


def _walk(instruction: Any, labels: frozenset[str], before: dict[int, frozenset[str]]) -> frozenset[str]:
    """The labels in front of each instruction, and behind the last one."""
    while instruction is not None:
        before[instruction.number] = before.get(instruction.number, NO_LABELS) | labels
        inner = instruction.inner()
        if inner is not None:
            labels = labels | _walk(inner, labels, before)
        for stage in instruction.stages():
            labels = stage.marks.labels_out(labels)
        instruction = instruction.after
    return labels
