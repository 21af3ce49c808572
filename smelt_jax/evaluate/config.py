"""Settings of the evaluate room."""

import dataclasses


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
