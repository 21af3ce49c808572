"""Settings of the train room."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class LossConfig:
    """What is minimised: cross-entropy + balance · balance loss + router_z · router z-loss.

    Attributes:
      balance: weight of the load-balance loss. Ours (not published).
      router_z: weight of the router z-loss. Ours (not published).
      chunk_tokens: tokens whose logits exist at one time; no [B, T, V] array is ever made.
    """

    balance: float = 0.01
    router_z: float = 1e-4
    chunk_tokens: int = 1024

    def check(self) -> None:
        """Raises ValueError on a value that makes no sense."""
        for name in ('balance', 'router_z'):
            require(getattr(self, name) >= 0, f'loss.{name}', getattr(self, name), 'at least 0')
        require(self.chunk_tokens >= 1, 'loss.chunk_tokens', self.chunk_tokens, 'at least 1')


@dataclasses.dataclass(frozen=True)
class OptimConfig:
    """AdamW under a warmup – stable – decay schedule. The learning rates of the papers are not published: these are ours.

    Attributes:
      peak_lr: the rate of the stable phase.
      warmup_steps: linear rise from 0; 0 starts at the peak.
      b1, b2, eps: of AdamW.
      weight_decay: on matrices and expert weights, never on norms.
      clip_norm: bound of the global gradient norm; 0 for none.
      moment_dtype: of the first moment; the second is float32 always, since small changes vanish in bfloat16.
      accumulate: microbatches of an update.
      skip_nonfinite: how many updates in a row may be skipped because loss or gradient is NaN or infinite; 0 ends the run at
        the first. May be set on a run that has ended so.
    """

    peak_lr: float = 1e-3
    warmup_steps: int = 100
    b1: float = 0.9
    b2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    moment_dtype: str = 'float32'
    accumulate: int = 1
    skip_nonfinite: int = 0

    def check(self) -> None:
        """Raises ValueError on a value that makes no sense."""
        for name in ('peak_lr', 'warmup_steps', 'weight_decay', 'clip_norm', 'skip_nonfinite'):
            require(getattr(self, name) >= 0, f'optim.{name}', getattr(self, name), 'at least 0')
        require(self.eps > 0, 'optim.eps', self.eps, 'more than 0')
        for name in ('b1', 'b2'):
            require(0 <= getattr(self, name) < 1, f'optim.{name}', getattr(self, name), 'at least 0 and below 1')
        require(self.accumulate >= 1, 'optim.accumulate', self.accumulate, 'at least 1')
        dtypes = ('float32', 'bfloat16')
        require(self.moment_dtype in dtypes, 'optim.moment_dtype', self.moment_dtype, ' or '.join(dtypes))


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How long a run goes on, and what it keeps.

    Attributes:
      steps: updates of the trunk.
      log_every: updates between two lines of metrics.jsonl. May change when a run goes on.
      save_every: updates between two checkpoints. May change.
      save_minutes: save, too, when this many minutes have passed since the last checkpoint; 0 never does. May change.
      keep: how many of the newest checkpoints are kept, pinned ones (branch_steps) counted. May change.
      branch_steps: steps whose checkpoints are pinned, kept for ever: annealing branches start there.
      branch_tokens: tokens of one annealing branch.
      final_lr_fraction: of the trunk's rate, where the cosine of a branch ends.
      spike: report a loss this many standard deviations above the median of the last 64; 0 reports none. Ours. May change.
      stall_minutes: end the run, with the stacks of its threads, after this many minutes without an update; 0 never does. The
        start and its compilation do not count, a slow save does. May change.
      peak_flops: of the machine, FLOP/s, for MFU; 0 measures a matrix product at start.
    """

    steps: int = 1000
    log_every: int = 10
    save_every: int = 100
    save_minutes: float = 0.0
    keep: int = 2
    branch_steps: tuple[int, ...] = ()
    branch_tokens: int = 0
    final_lr_fraction: float = 0.0
    spike: float = 8.0
    stall_minutes: float = 30.0
    peak_flops: float = 0.0

    def check(self) -> None:
        """Raises ValueError on a value that makes no sense."""
        for name in ('steps', 'log_every', 'save_every', 'keep'):
            require(getattr(self, name) >= 1, f'train.{name}', getattr(self, name), 'at least 1')
        for name in ('branch_tokens', 'peak_flops', 'save_minutes', 'spike', 'stall_minutes'):
            require(getattr(self, name) >= 0, f'train.{name}', getattr(self, name), 'at least 0')
        fraction = self.final_lr_fraction
        require(0 <= fraction <= 1, 'train.final_lr_fraction', fraction, 'between 0 and 1')


def require(holds: bool, name: str, value: object, remedy: str) -> None:
    """Raises ValueError, naming setting, value and remedy, if it does not hold."""
    if not holds:
        raise ValueError(f'{name}={value!r}: must be {remedy}')
