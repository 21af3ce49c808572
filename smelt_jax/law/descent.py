"""Descent from many places at a time: damped Newton steps on the sum of Huber losses, within bounds."""

import dataclasses

import numpy as np

from smelt_jax.law.objective import Objective

TOLERANCE = 1e-12  # of what another step could gain, over the value
ROUNDING = 2.2e-16  # of a residual


@dataclasses.dataclass(frozen=True)
class Descent:
    """Attributes:
    x: [B, P] where each ended.
    value: [B] `Objective.huber` there.
    converged: [B] whether another step would gain less than TOLERANCE of the value, or than its rounding.
    """

    x: np.ndarray
    value: np.ndarray
    converged: np.ndarray

    def best(self, count: int) -> np.ndarray:
        """Indices of the `count` lowest, lowest first; of equals the first."""
        return np.argsort(self.value, kind='stable')[:count]


def descend(objective: Objective, x: np.ndarray, steps: int, weights: np.ndarray | None = None) -> Descent:
    """Goes down from each of x [B, P].

    A step solves (H + λ M) s = −g. H has the rows within the parabola alone (Newton's), M all rows with the weight at which a
    parabola touches their Huber loss from above (reweighted least squares), and M's diagonal again. A large λ is the careful
    second, a small one the quick first; λ falls with each step that gains and rises with each that does not.

    Args:
      objective: what is made small.
      x: variables to start from.
      steps: at most.
      weights: [B, n] of the rows; None for 1 each.
    """
    low, high = objective.bounds
    x = np.clip(x, low, high)
    weights = np.ones((len(x), len(objective.loss))) if weights is None else weights
    value, converged = np.full(len(x), np.inf), np.zeros(len(x), bool)
    damping = np.ones(len(x))
    with np.errstate(all='ignore'):
        residuals, slopes = objective.residuals_of(x)
        value = objective.huber(residuals, weights)
        live = np.flatnonzero(np.isfinite(value))  # places where the law is not finite lead nowhere
        residuals, slopes = residuals[live], slopes[live]
        for _ in range(steps):
            if not len(live):
                break
            step, gain = _step(objective, x[live], residuals, slopes, weights[live], damping[live])
            tried = np.clip(x[live] + step, low, high)
            new_residuals, new_slopes = objective.residuals_of(tried)
            new_value = objective.huber(new_residuals, weights[live])
            better = new_value < value[live]
            done = (gain <= TOLERANCE * value[live] + 1e-18) | (damping[live] > 1e12)
            rounding = ROUNDING / objective.unit * np.sqrt(2 * value[live])  # of a sum of squares of residuals
            converged[live] = gain <= TOLERANCE * value[live] + 1e-18 + rounding
            x[live[better]], value[live[better]] = tried[better], new_value[better]
            damping[live] = np.where(better, np.maximum(damping[live] * 0.2, 1e-9), damping[live] * 5)
            residuals = np.where(better[:, None], new_residuals, residuals)[~done]
            slopes = np.where(better[:, None, None], new_slopes, slopes)[~done]
            live = live[~done]
    return Descent(x, value, converged)


def _step(
    objective: Objective,
    x: np.ndarray,
    residuals: np.ndarray,
    slopes: np.ndarray,
    weights: np.ndarray,
    damping: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The step [B, P], and how much of the value the careful one would gain, [B]."""
    low, high = objective.bounds
    scaled = slopes / objective.unit
    pull = objective.pull(residuals)
    size = np.abs(residuals) / objective.unit
    touching = weights * np.minimum(1.0, (objective.delta / objective.unit) / np.maximum(size, 1e-300))
    inside = weights * (size <= objective.delta / objective.unit)
    gradient = (scaled @ (weights * pull)[..., None])[..., 0]
    held = ((x <= low) & (gradient > 0)) | ((x >= high) & (gradient < 0))
    gradient = np.where(held, 0.0, gradient)
    free = ~held[:, :, None] & ~held[:, None, :]
    eye = np.eye(x.shape[1])
    careful = np.where(free, (scaled * touching[:, None, :]) @ scaled.swapaxes(1, 2), 0.0)
    careful += eye * held[:, :, None]
    diagonal = np.einsum('bpp->bp', careful)
    careful += eye * (1e-13 * diagonal + 1e-300)[:, :, None]  # coefficients that the rows do not feel stay
    quick = np.where(free, (scaled * inside[:, None, :]) @ scaled.swapaxes(1, 2), 0.0)
    matrix = quick + damping[:, None, None] * (careful + eye * (0.1 * diagonal)[:, :, None])
    root = np.sqrt(np.maximum(np.einsum('bpp->bp', matrix), 1e-300))
    normal = matrix / root[:, :, None] / root[:, None, :] + 1e-15 * eye
    step = -np.linalg.solve(normal, (gradient / root)[..., None])[..., 0] / root
    sane = np.isfinite(step).all(-1)
    step = np.where(sane[:, None], step, 0.0)
    scale = np.sqrt(np.maximum(diagonal, 1e-300))
    gain = np.linalg.solve(
        careful / scale[:, :, None] / scale[:, None, :] + 1e-12 * eye, (gradient / scale)[..., None]
    )[..., 0]
    return step, (gain * gradient / scale).sum(-1)
