"""`Batch`: what the data side hands to the model side.

Shape glossary, used in every name of the project:

    B  rows in a batch              N  query heads           E  experts
    T  positions in a row           G  key-value heads       K  experts per token
    D  model width                  H  head dimension        F  expert width
    V  vocabulary                   L  layers of a stack     R  visits of the loop
"""

from typing import Any, NamedTuple

Array = Any  # a jax.Array, a numpy array, or a tracer: the data side does not import jax


class Batch(NamedTuple):
    """Rows of packed documents. A row of T + 1 stored tokens gives T inputs and T targets.

    Attributes:
      tokens_BT: int32, the inputs.
      targets_BT: int32, the token that follows each input.
      segment_ids_BT: int32, of the input: 1, 2, … count the documents of a row; 0 is padding.
      positions_BT: int32, of the input, counted from the start of its segment.
      loss_mask_BT: float32, 1 where input and target are of one document, else 0. So padding, and the border between
        two documents, carry no loss.
    """

    tokens_BT: Array
    targets_BT: Array
    segment_ids_BT: Array
    positions_BT: Array
    loss_mask_BT: Array
