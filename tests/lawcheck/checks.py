"""A figure beside what it should be."""

import dataclasses
import os
from pathlib import Path

# Public tables of measured losses: SMELT_TEST_LAWS, or shared/data/laws beside the repository.
TABLES = Path(os.environ.get('SMELT_TEST_LAWS') or Path(__file__).parents[3] / 'shared' / 'data' / 'laws')


@dataclasses.dataclass(frozen=True)
class Check:
    """Attributes:
    what: was fitted, to what.
    figure: its name.
    wanted: as published, or as the truth is; None for a figure that is only reported.
    found: by us.
    within: the largest difference that is allowed; `relative` to what is wanted if so.
    """

    what: str
    figure: str
    wanted: float | None
    found: float
    within: float = 0.0
    relative: bool = False

    @property
    def met(self) -> bool:
        """Whether it is as it should be; of one that is only reported, always."""
        if self.wanted is None:
            return True
        return abs(self.found - self.wanted) <= self.within * (abs(self.wanted) if self.relative else 1.0)

    def row(self) -> tuple[str, ...]:
        """Texts for a table."""
        if self.wanted is None:
            return self.what, self.figure, '', f'{self.found:.6g}', '', ''
        allowed = f'{self.within:.2%}' if self.relative else f'{self.within:g}'
        return (
            self.what,
            self.figure,
            f'{self.wanted:.6g}',
            f'{self.found:.6g}',
            allowed,
            'yes' if self.met else '**no**',
        )


def close(
    what: str, wanted: dict[str, tuple[float, float]], found: dict[str, float], relative: bool = False
) -> list[Check]:
    """A check of each name → (value, tolerance)."""
    return [Check(what, name, value, found[name], within, relative) for name, (value, within) in wanted.items()]
