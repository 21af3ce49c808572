"""A scenario: a line of the table, what is done to a run, how often, and what must be equal in the end."""

import collections
import dataclasses
import random
from collections.abc import Callable, Sequence

from faults.world import Place


class Skip(Exception):
    """This machine cannot do that; the message says why."""


@dataclasses.dataclass
class Seen:
    """What came of disturbing a run, once or several times.

    Attributes:
      doing: what the process was doing at each disturbance → how often.
      aimed: disturbances that hit what they were meant to hit.
      said: those that had a promised error or line on stderr, and had it.
      slowest: seconds from a disturbance to the end of the process, at most.
    """

    doing: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    aimed: int = 0
    said: int = 0
    slowest: float = 0.0

    def add(self, doing: str, aimed: bool = True, said: bool = False, seconds: float = 0.0) -> None:
        """One more disturbance."""
        self.doing[doing] += 1
        self.aimed += aimed
        self.said += said
        self.slowest = max(self.slowest, seconds)

    def join(self, other: 'Seen') -> None:
        """Those of another one, too."""
        self.doing += other.doing
        self.aimed += other.aimed
        self.said += other.said
        self.slowest = max(self.slowest, other.slowest)


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What is done to a run.

    Attributes:
      line: of the table; scenarios with the same one are counted together.
      act: disturbs, runs the same command again until it is done, and says what was seen. Raises Lost if a promise does not
        hold, Skip if the machine cannot do that. The same Random does the same.
      equal: the verbs whose results must be the undisturbed run's afterwards.
      times: how often, in the whole campaign.
      short: how often, in the short one.
    """

    line: str
    act: Callable[[Place, random.Random], Seen]
    equal: Sequence[str]
    times: int = 1
    short: int = 0
