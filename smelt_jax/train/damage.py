"""What Orbax and tensorstore raise, in the words of those who can do something about it."""

import contextlib
import errno
from collections.abc import Iterator

from etils import epath

# tensorstore's words for a disk or a network that does not answer: nothing is known to be wrong with the file.
_NO_ANSWER = (
    'UNAVAILABLE',
    'DEADLINE_EXCEEDED',
    'PERMISSION_DENIED',
    'UNAUTHENTICATED',
    'RESOURCE_EXHAUSTED',
    'CANCELLED',
)


class DamagedError(ValueError):
    """A checkpoint does not come back as it was saved. `what` is the first half of the message, without the remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f'{what}. {remedy[:1].upper()}{remedy[1:]}')
        self.what = what


@contextlib.contextmanager
def reading(name: str, remedy: str) -> Iterator[None]:
    """Damage shows as errors of many kinds, and Orbax's threads may drown the first one: it becomes one DamagedError, or an
    OSError if the disk or the network does not answer."""
    try:
        yield
    except Exception as error:
        reason = _first_line(error)
        no_answer = isinstance(error, OSError) and error.errno not in (None, errno.ENOENT)
        if no_answer or any(word in reason for word in _NO_ANSWER):
            raise OSError(f'{name} could not be read: {reason}') from error
        raise DamagedError(f'{name} is damaged: {reason}', remedy) from error


@contextlib.contextmanager
def writing(path: epath.Path) -> Iterator[None]:
    """What is raised when something cannot be written is of many kinds: it becomes an OSError."""
    try:
        yield
    except Exception as error:
        raise OSError(f'{path}: a checkpoint could not be written: {_first_line(error)}') from error


def _first_line(error: Exception) -> str:
    """tensorstore's may have thousands of characters."""
    return (str(error) or type(error).__name__).splitlines()[0][:300]
