"""What `smelt contamination` answers: how much of each task stands in packed rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from etils import epath
from rich.table import Table

from smelt_jax.data.packed import documents
from smelt_jax.screen import Answer
from smelt_jax.tasks.contamination import Hit, Overlap, looked_up
from smelt_jax.tasks.reading import examples
from smelt_jax.tasks.task import Task

SHOWN = 100  # characters of an example


def answer(
    pack: str,
    split: str,
    tasks: Sequence[Task],
    folder: epath.Path,
    words: int,
    show: int = 0,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> Answer:
    """By task, its examples with a run of `words` words that stands in a document of the split.

    Args:
      folder: of the tasks' files.
      show: examples of each task whose beginning is shown, with the first run that was found.
      progress: hears of what is read, rows read, and rows in all.

    Raises:
      ValueError: a pack that is not whole, or a task's file that is malformed.
    """
    read = _Counted(documents(pack, split, lambda done, of: progress(f'{split} rows of {pack}', done, of)))
    found = looked_up({task.name: examples(task, folder) for task in tasks}, read, words)
    title = f'examples with {words} words in a row that stand in the {split} split of {pack}'
    lines = [
        f'{read.documents:,} documents of {read.bytes:,} bytes were read, each whole: what rows had cut was joined.',
        f'An example of under {words} words has no such run, and cannot be found.',
    ]
    for task, (_, hits) in found.items():
        lines += [_line(task, hit) for hit in hits[:show]]
    data = {
        'pack': pack,
        'split': split,
        'words': words,
        'documents': read.documents,
        'bytes': read.bytes,
        'tasks': {task: _data(overlap, hits) for task, (overlap, hits) in found.items()},
    }
    return Answer([_table(title, {task: overlap for task, (overlap, _) in found.items()})], data, lines)


class _Counted:
    """Documents, and how many they were."""

    def __init__(self, texts: Iterator[bytes]) -> None:
        self.documents = self.bytes = 0
        self._texts = texts

    def __iter__(self) -> Iterator[bytes]:
        for text in self._texts:
            self.documents += 1
            self.bytes += len(text)
            yield text


def _table(title: str, found: Mapping[str, Overlap]) -> Table:
    table = Table(title=title, title_justify='left')
    table.add_column('task')
    for name in ('examples', 'too short', 'with an overlap', 'share', 'n-grams', 'found', 'share'):
        table.add_column(name, justify='right')
    for task, one in found.items():
        counts = (one.examples, one.short, one.hit, one.share, one.runs, one.found, one.runs_share)
        table.add_row(task, *(f'{value:.2%}' if isinstance(value, float) else f'{value:,}' for value in counts))
    return table


def _line(task: str, hit: Hit) -> str:
    begin = hit.text if len(hit.text) <= SHOWN else f'{hit.text[:SHOWN]}…'
    return f'{task}, example {hit.example}: {begin}\n    found: {hit.run}'


def _data(overlap: Overlap, hits: Sequence[Hit]) -> dict:
    shares = {'share': overlap.share, 'runs_share': overlap.runs_share}
    return {**overlap._asdict(), **shares, 'found_in': [{'example': hit.example, 'run': hit.run} for hit in hits]}
