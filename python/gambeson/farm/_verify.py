"""Results of a sample are computed by another worker, too, and whoever gives another one is found out."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gambeson.farm import _plain
from gambeson.farm._token import Parts, Token, dump

if TYPE_CHECKING:
    from gambeson.farm._control import Control
    from gambeson.farm._errors import Failure


@dataclass(eq=False)
class Opinion:
    """What a worker says that a task results in."""

    control: Control
    token: Token
    failures: dict[int, Failure] | None
    print: tuple[object, ...]

    @classmethod
    def of(cls, control: Control, token: Token, failures: dict[int, Failure] | None) -> Opinion:
        """Two opinions with the same print are the same, bit by bit."""
        try:
            parts = _print(token.items() if token.parts else [])
        except Exception:
            # Of what cannot be loaded here all that is known is how it is written.
            parts = list(token.parts)
        failed = tuple(sorted(failures or ()))
        return cls(control, token, failures, (token.count, failed, *(bytes(part) for part in parts)))


def _print(items: list[Any]) -> Parts:
    try:
        return _plain.dump(items)
    except _plain.NotPlain:
        return dump(items)


@dataclass
class Verdict:
    """What comes of opinions: one that holds, or none yet; and who is wrong."""

    opinion: Opinion | None
    wrong: list[Control]


class Verifier:
    """Picks the sample, and judges."""

    def __init__(self, share: float) -> None:
        if not 0.0 <= share <= 1.0:
            what = f"verify is the share of tasks that are computed twice, and {share} is none; 0.02 is one in fifty"
            raise ValueError(what)
        self.share = share
        # Whoever lies must not know when it is looked at.
        self._chance = random.SystemRandom()

    def picks(self) -> bool:
        """Whether a result is of the sample."""
        return self.share > 0.0 and self._chance.random() < self.share

    @staticmethod
    def judge(opinions: list[Opinion]) -> Verdict:
        """By a worker that is trusted, if one is among them, else by the first two that agree."""
        for opinion in opinions:
            others = [other for other in opinions if other is not opinion and other.print == opinion.print]
            if others or (opinion.control.place.local and len(opinions) > 1):
                wrong = [other.control for other in opinions if other.print != opinion.print]
                return Verdict(opinion, wrong)
        return Verdict(None, [])
