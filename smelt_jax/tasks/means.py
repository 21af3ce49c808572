"""Records of tasks over the seeds that drew their shots: means and standard errors, as tables and figures have them."""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

Record = dict[str, Any]


class Mean(NamedTuple):
    """A task at a number of shots and visits, over the seeds that drew the shots.

    Attributes:
      record: of the first seed.
      accuracy, centered, completion: means.
      error: standard error of the accuracy: of its mean over seeds, of one seed over examples; None of one example.
      completion_error: likewise of the completion; None of one seed.
      seeds: how many.
    """

    record: Record
    accuracy: float
    centered: float
    completion: float
    error: float | None
    completion_error: float | None
    seeds: int


def means(records: Sequence[Record]) -> list[Mean]:
    """One a task, shots and visits, in the order in which they come up."""
    parts: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        parts.setdefault((record['task'], record['shots'], record['visits']), []).append(record)
    return [_mean(part) for part in parts.values()]


def _mean(part: Sequence[Record]) -> Mean:
    accuracy, centered, completion = (
        statistics.fmean(record[key] for record in part) for key in ('accuracy', 'centered', 'completion')
    )
    error, completion_error = part[0]['accuracy_error'], None
    if len(part) > 1:
        error, completion_error = (
            statistics.stdev(record[key] for record in part) / len(part) ** 0.5 for key in ('accuracy', 'completion')
        )
    return Mean(part[0], accuracy, centered, completion, error, completion_error, len(part))
