"""A task is a row of a table: a file of examples, what kind they are, how many are shown first, and what chance scores."""

import dataclasses

KINDS = ('multiple_choice', 'schema', 'language_modeling', 'generation')
NORMALISATIONS = ('raw', 'character', 'byte', 'token')


@dataclasses.dataclass(frozen=True)
class Task:
    """Attributes:
    name: as on the command line and in records.
    kind: of KINDS. `schema` (Winograd style) has one continuation and a context a candidate.
    file: in the task folder, or `made:NAME` of examples that are generated.
    shots: examples shown before the question.
    chance: what guessing scores, a fraction.
    delimiter: between context and continuation.
    question: before each context.
    joint: between examples.
    reasoning: of generation: between a shot's chain of thought and its answer, and where an answer begins in what is generated.
    normalise: what a choice's log-probability is divided by, of NORMALISATIONS.
    by_category: whether shots come from the example's own category.
    shot_file: where shots come from; '' for the task's own file.
    group: of tables: `core`, `extra`, `made`.
    """

    name: str
    kind: str
    file: str
    shots: int
    chance: float
    delimiter: str = ' '
    question: str = ''
    joint: str = '\n'
    reasoning: str = ''
    normalise: str = 'token'
    by_category: bool = False
    shot_file: str = ''
    group: str = ''
