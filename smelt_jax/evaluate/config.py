"""Settings of the evaluate room."""

import dataclasses
import itertools


@dataclasses.dataclass(frozen=True)
class HeldoutConfig:
    """Held-out loss.

    Attributes:
      batch_rows: rows of a batch.
      max_rows: rows that are read at most, evenly over the held-out set; 0 reads all.
      length_bins: edges, in tokens of the whole document, of the bins of document length.
    """

    batch_rows: int = 8
    max_rows: int = 0
    length_bins: tuple[int, ...] = (512, 1024, 2048, 4096)

    def check(self) -> None:
        """Raises ValueError on a value that makes no sense."""
        for name, least in (('batch_rows', 1), ('max_rows', 0)):
            if getattr(self, name) < least:
                raise ValueError(f'heldout.{name}={getattr(self, name)}: must be at least {least}')
        if any(low >= high for low, high in itertools.pairwise((0, *self.length_bins))):
            raise ValueError(f'heldout.length_bins={self.length_bins}: edges must be positive and ascend')
