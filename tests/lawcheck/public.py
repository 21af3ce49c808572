"""Fits of public tables of measured losses beside the figures that were published for them.

What is wanted is the publication's own figure, or, where it is not the optimum of its own objective or its points were read
off a picture, that of an independent fit to the same file (`published_fits.json`).
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lawcheck.checks import TABLES, Check, close
from lawcheck.isoflop import exponents
from smelt_jax.law.fit import Settings, fit
from smelt_jax.law.fitted import Fitted
from smelt_jax.law.laws import law_named
from smelt_jax.law.published import fits_of
from smelt_jax.law.table import tables

BESIROGLU = ('N=N_params', 'D=D_tokens', 'loss=loss_nats')
CLARK = ('N=dense_parameter_count', 'E=num_experts', 'loss=loss_validation')
INJECTED_ONCE = (
    'N=N_once_blocks+N_rec_blocks+N_inject',
    'N_loop=N_rec_blocks',
    'R=r',
    'D=D_tokens_from_C',
    'loss=loss_nats',
)
INJECTED_EACH = (INJECTED_ONCE[0], 'N_loop=N_rec_blocks+N_inject', *INJECTED_ONCE[2:])


def published(name: str) -> Any:
    """An entry of published_fits.json."""
    return json.loads((TABLES / 'published_fits.json').read_text())[name]


def fitted(file: str, law: str, columns: Sequence[str], settings: Settings, **rows: Any) -> Fitted:
    """The fit of one group of rows of a public table."""
    (table,) = tables([str(TABLES / file)], law_named(law), columns, **rows)
    return fit(table, settings)


def chinchilla() -> list[Check]:
    """The 240 points of Hoffmann et al. that Besiroglu et al. read off their figure."""
    drawn = Settings(bootstrap='points', replicates=2000, leave_out=False)
    found = fitted('chinchilla_besiroglu_245.csv', 'chinchilla', BESIROGLU, drawn, where=['in_fit_240==1'])
    what = 'Chinchilla, 240 points'
    entry = published('besiroglu2024_chinchilla')
    best = entry['notebook_exact_minimiser']
    checks = [Check(what, 'objective', best['objective_sum'], found.details['objective'], 1.6e-8)]
    checks += close(what, {name: (best[name], 0.002) for name in ('E', 'alpha', 'beta')}, found.coefficients)
    checks += close(what, {'A': (best['A'], 0.02), 'B': (best['B'], 0.04)}, found.coefficients, relative=True)
    for name, (low, high) in entry['bootstrap95'].items():
        for side, wanted, end in zip(('low', 'high'), (low, high), found.details['intervals'][name], strict=True):
            checks.append(Check(what, f'95% of {name}, {side}', wanted, end, 0.08 * (high - low)))
    return checks


def clark() -> list[Check]:
    """Routed models of Clark et al.: each router with the dense models as its E = 1; least squares on log10."""
    entry = published('clark2022_routed')
    checks = []
    for known in fits_of('published:clark'):
        others = [f'router_type!={name}' for name in entry['published'] if name != known.group]
        rows = {'where': ['in_eq1_fit_subset==1', *others]}
        squares = Settings(residuals='log10', delta=np.inf, leave_out=False)
        found = fitted('clark2022_routed_final.csv', 'clark', CLARK, squares, **rows)
        what, refit = f'Clark equation 1, {known.group}', entry['own_refit_on_in_eq1_fit_subset'][known.group]
        within = {'a': 2e-4, 'b': 1e-3, 'c': 2e-4, 'd': 1e-3}
        checks += close(what, {name: (refit[name], width) for name, width in within.items()}, found.coefficients)
        checks += close(what, {name: (refit[name], 0.02) for name in ('E_start', 'E_max')}, found.coefficients, True)
        checks.append(Check(what, 'RMS of log10', refit['rmse_log10'], found.details['rms_residual'], 2e-5))
        checks += close(
            what + ', against table 3', {n: (known.coefficients[n], 0.011) for n in 'abc'}, found.coefficients
        )
        (table,) = tables([str(TABLES / 'clark2022_routed_final.csv')], law_named('clark'), CLARK, **rows)
        error = np.log10(known.loss(table.columns) / table.loss)
        wanted = entry['rmse_log10_of_published_on_subset'][known.group]
        checks.append(Check(what, 'RMS of log10 of table 3', wanted, float(np.sqrt((error**2).mean())), 2e-4))
    dense = fitted(
        'clark2022_routed_final.csv',
        'clark-dense',
        (CLARK[0], CLARK[2]),
        squares,
        where=['in_eq1_fit_subset==1', 'router_type==Dense'],
    )
    refit = entry['own_refit_on_in_eq1_fit_subset']['dense']
    checks.append(Check('Clark, dense', 'alpha', refit['alpha_N'], dense.coefficients['alpha'], 5e-4))
    checks.append(Check('Clark, dense', 'N_c', refit['N_c'], dense.coefficients['N_c'], 0.02, True))
    return checks


def joint_moe() -> list[Check]:
    """Table 3 of Ludziejewski et al., by the law, beside its table 4: m N^mu + n D^nu + c for each E."""
    (known,) = fits_of('published:joint-moe')
    table = published('ludziejewski2025_joint_moe')['table4_reduced']
    ones, law = np.ones(len(table['E'])), known.kind
    experts, e = np.array(table['E'], float), np.e

    def part(drop: str, **at: float) -> np.ndarray:
        of = known.coefficients | {drop: 0.0, 'c': 0.0}
        return law.loss(of, {'E': experts, 'N': ones * at.get('N', 1.0), 'D': ones * at.get('D', 1.0)})

    found = {
        'm': part('B'),
        'mu': np.log(part('B', N=e) / part('B')),
        'n': part('A'),
        'nu': np.log(part('A', D=e) / part('A')),
    }
    checks = []
    for name, values in found.items():
        off = np.abs(values / table[name] - 1).max()
        checks.append(Check('Joint MoE, table 3 → 4', f'largest relative difference of {name}', 0.0, float(off), 3e-3))
    (rows,) = tables([str(TABLES / 'joint_moe2025_sweep.csv')], law, ['N=N_act', 'D=D_tokens', 'loss=law_loss_nats'])
    off = np.abs(known.loss(rows.columns) / rows.loss - 1).max()
    return [*checks, Check('Joint MoE, 267 runs of its list', 'largest difference of the law', 0.0, float(off), 1e-5)]


def iso_depth() -> list[Check]:
    """Looped dense models of Iso-Depth, by the power map; injected parameters among those that are used once."""
    entry = published('isodepth2026')['own_refit_digitised_inject_in_N_once']
    small = 'C_flop<=4.64e18'
    variants = {
        'vanilla': (['variant==vanilla'], INJECTED_ONCE, entry['vanilla']['phi']),
        'four budgets': (['variant==vanilla', small], INJECTED_ONCE, entry['baseline_4_budgets']['phi']),
        'lower half': (['variant==vanilla', 'C_flop<=2.15e18'], INJECTED_ONCE, entry['low_half_phi']),
        'upper half': (['variant==vanilla', 'C_flop>=4.64e18'], INJECTED_ONCE, entry['high_half_phi']),
        'truncated, without r = 2': (
            [small, 'variant!=hyperconnections', 'r!=2'],
            INJECTED_ONCE,
            entry['truncated_no_r2']['phi'],
        ),
        'truncated': ([small, 'variant!=hyperconnections'], INJECTED_ONCE, entry['truncated_bptt']['phi']),
        'hyperconnections': ([small, 'variant!=truncated_bptt'], INJECTED_ONCE, entry['hyperconnections']['phi']),
        'vanilla, injection repeated': (
            ['variant==vanilla'],
            INJECTED_EACH,
            published('isodepth2026')['own_refit_inject_in_N_rec']['vanilla_phi'],
        ),
    }
    checks = []
    for name, (where, columns, phi) in variants.items():
        # r = 1 is shared: of the looped rows take the variant's own.
        drop = [] if name.startswith(('vanilla', 'four', 'lower', 'upper')) else ['variant==vanilla,r>1']
        drawn = Settings(bootstrap='cells' if name == 'vanilla' else 'none', replicates=1000, leave_out=False)
        found = fitted(
            'isodepth2026_runs_digitised.csv',
            'looped-power-dense',
            columns,
            drawn,
            where=where,
            exclude=drop,
            cells=['C_flop', 'r'],
        )
        what = f'Iso-Depth, {name}'
        checks.append(Check(what, 'phi', phi, found.coefficients['phi'], 0.001))
        if name == 'vanilla':
            checks += close(
                what, {'r2': (0.9972, 1e-4), 'rmse': (0.0102, 1e-4), 'largest': (0.0367, 1e-4)}, found.details
            )
            for side, wanted, end in zip(('low', 'high'), (0.41, 0.53), found.details['intervals']['phi'], strict=True):
                checks.append(Check(what, f'95% of phi, {side}', wanted, end, 0.02))
    return checks


def parcae() -> list[Check]:
    """Parcae's 140M models at iso-FLOP, by parameters as unrolled."""
    columns = ('N=N_eff_unrolled', 'D=D_tokens_est', 'loss=loss_nats')
    found = fitted(
        'parcae2026_isoflop140m_digitised.csv',
        'chinchilla',
        columns,
        Settings(leave_out=False),
        where=['marker_visible==1'],
    )
    what, refit = 'Parcae 140M, 34 points', published('parcae2026')['own_refit_140M_digitised']
    checks = close(
        what, {'E': (refit['E'], 1e-3), 'alpha': (refit['a'], 2e-3), 'beta': (refit['b'], 2e-3)}, found.coefficients
    )
    checks += close(what, {'A': (refit['A'], 0.03), 'B': (refit['B'], 0.03)}, found.coefficients, relative=True)
    return [*checks, Check(what, 'objective', refit['huber'], found.details['objective'], 0.02, True)]


def porian() -> list[Check]:
    """Exponents of the optimal size by iso-FLOP minima, ten settings of Porian et al., their fit `basic`."""
    return [
        Check(f'Porian, {setting}', 'exponent of N*', wanted, found, 0.005)
        for setting, wanted, found in exponents(TABLES)
    ]


def gadre() -> list[Check]:
    """Dense models of Gadre et al. with 20 tokens a parameter or more: fitted, and the largest predicted from the others."""
    checks = []
    for train in ('c4_original', 'rpj', 'rw_original'):
        found = fitted(
            'gadre2024_overtrain_104.csv', 'chinchilla', ('N=N_params', 'D=D_tokens', 'loss=loss_c4_val'), Settings(),
            where=[f'train_set=={train}', 'chinchilla_multiplier>=1'], holdout=['N>1.3e9'],
        )  # fmt: skip
        what = f'Gadre, {train} → C4'
        checks.append(Check(what, 'RMSE of models below 1.3e9', None, found.details['rmse']))
        checks.append(Check(what, 'RMSE of held-out larger ones', None, found.details['held_out']['rmse']))
    return checks


def misfitting() -> list[Check]:
    """Dense models over learning rates: the best of each size and tokens."""
    found = fitted(
        'misfitting2025_dense.csv',
        'chinchilla',
        ('N=N_params', 'D=D_tokens', 'loss=c4_eval_loss_nats'),
        Settings(),
        best=True,
    )
    what = f'Misfitting, {found.points} points'
    names = {'E': found.coefficients['E'], 'alpha': found.coefficients['alpha'], 'beta': found.coefficients['beta']}
    return [Check(what, name, None, value) for name, value in {**names, 'rmse': found.details['rmse']}.items()]


PUBLIC: dict[str, Callable[[], list[Check]]] = {
    'chinchilla': chinchilla,
    'clark': clark,
    'joint-moe': joint_moe,
    'iso-depth': iso_depth,
    'parcae': parcae,
    'porian': porian,
    'gadre': gadre,
    'misfitting': misfitting,
}
