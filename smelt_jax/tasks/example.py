"""An example of a task, whatever the kind."""

from typing import NamedTuple


class Example(NamedTuple):
    """Attributes:
    contexts: one; of a schema, one a candidate.
    continuations: one a choice; of a schema, of language modelling and of generation one.
    gold: index of the right candidate.
    answers: of generation, all texts that count as right; the first is the continuation.
    reasoning: chain of thought, told in shots.
    category: '' if the file has none.
    """

    contexts: tuple[str, ...]
    continuations: tuple[str, ...]
    gold: int = 0
    answers: tuple[str, ...] = ()
    reasoning: str = ''
    category: str = ''

    @property
    def candidates(self) -> list[tuple[str, str]]:
        """(context, continuation) of each."""
        count = max(len(self.contexts), len(self.continuations))
        return [
            (self.contexts[i % len(self.contexts)], self.continuations[i % len(self.continuations)])
            for i in range(count)
        ]
