"""How far an evaluation is."""

import rich.progress

from smelt_jax.screen import Progress


class Bar:
    """A bar a task on a terminal, a line a task elsewhere, on stderr. `done` says what its parts are then."""

    def __init__(self, done: str = 'scored') -> None:
        self._done = done
        self._console = Progress()
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn('{task.description}', markup=False),
            rich.progress.BarColumn(bar_width=20),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task: rich.progress.TaskID | None = None
        self._what = ''

    def __enter__(self) -> 'Bar':
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, what: str, done: int, of: int) -> None:
        """`done` of `of` parts of `what` are done."""
        if what != self._what:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._what, self._task = what, self._bar.add_task(what, total=of)
        if self._task is not None:
            self._bar.update(self._task, completed=done)
        if done == of and not self._console.is_terminal:
            self._console.print(f'{what}: {of:,} {self._done}')
