"""The optimal size at each of several budgets, off the losses themselves, and the power law through them."""

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.interpolate import Akima1DInterpolator

SETTING = ('dataset', 'hparams', 'warmup', 'decay', 'param_count', 'val')


def minimum(size: np.ndarray, loss: np.ndarray) -> float | None:
    """Where Akima's curve through ln loss over ln size is lowest; None if that is the smallest or the largest size."""
    order = np.argsort(size)
    x = np.log(size[order])
    at = np.linspace(x[0], x[-1], 20_001)
    lowest = int(np.argmin(Akima1DInterpolator(x, np.log(loss[order]))(at)))
    return None if lowest in (0, len(at) - 1) else float(np.exp(at[lowest]))


def exponents(folder: Path) -> Iterator[tuple[str, float, float]]:
    """Setting, the published exponent of the optimal size, and ours: the slope of ln N* over ln C."""
    points: dict[tuple[str, ...], dict[float, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    with open(folder / 'porian2024_isoflop.csv') as file:
        for row in csv.DictReader(file):
            setting = tuple(row[name] for name in SETTING)
            points[setting][float(row['C_flop'])].append((float(row['N_params']), float(row['loss_nats'])))
    with open(folder / 'porian2024_published_fits.csv') as file:
        for row in csv.DictReader(file):
            if row['fit'] == 'basic':
                setting = tuple(row[name] for name in SETTING)
                found = {budget: minimum(*np.array(part).T) for budget, part in points[setting].items()}
                kept = [(budget, size) for budget, size in found.items() if size is not None]
                slope = np.polyfit(*np.log(np.array(kept)).T, 1)[0]
                yield ' '.join(setting), float(row['n_exponent']), float(slope)
