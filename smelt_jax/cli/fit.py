"""Fits a law of loss to records of runs, or to any table.

    smelt fit --records='runs/*/*/records.jsonl' --law=smelt --by=architecture --bootstrap=cells --out=fit.json
    smelt fit --records=table.csv --columns=loss=final_loss,params=N,tokens=D --law=chinchilla --out=fit.json
    smelt fit --records=table.csv --law=looped-power-dense --columns=N=N_once+N_rec,N_loop=N_rec --holdout='R>8'

Laws: smelt, chinchilla, moe, joint-moe, clark, clark-dense, and looped-MAP-dense and looped-MAP-moe, where MAP is linear,
power, bounded or bounded-m. What is printed says what the columns of the law are; docs/laws.md has all formulas.

Of records it takes the held-out losses of annealed branches, at the visits of training, and says what it left out. They have
the columns of every law; loss=by_domain.Code.loss takes the loss of a domain, by_source.Code/a.loss that of a source,
'by_length.<512.loss' that of short documents. A table is a CSV file, .gz or not. --columns says what it calls the columns of
the law: NAME=COLUMN, COLUMN=NAME, or NAME=arithmetic of columns, as D=tokens/1e9.

Small is made the sum of Huber losses of the residuals, from many starts, of which the best go on and end with L-BFGS-B.
Intervals are percentiles of fits to rows, or cells, that are drawn with replacement. Warnings say what the rows cannot tell.
"""

import sys

from absl import flags


def define_flags() -> None:
    """What is read, what is fitted, how, and where it goes."""
    flags.DEFINE_list('records', None, 'Files, run directories, or patterns of them: A,B,… Required.')
    flags.DEFINE_string('law', None, 'The law. Required.')
    flags.DEFINE_list('columns', [], 'What the table calls the columns of the law; see above.')
    flags.DEFINE_string('by', '', 'A column: one fit for each of its values. Records have `architecture` and `name`.')
    flags.DEFINE_list('cells', [], 'Columns that name a cell; by default all of the law but D, and `cell` of records.')
    flags.DEFINE_multi_string(
        'where', [], 'COLUMN==VALUE, or != < > <= >=, or COLUMN== if empty: rows to take. Any number.'
    )
    flags.DEFINE_multi_string('exclude', [], 'The same: rows to leave out.')
    flags.DEFINE_multi_string('holdout', [], 'The same: rows that the fit is tested on and does not see.')
    flags.DEFINE_bool(
        'best', False, 'Of rows with the same columns, as of a sweep of learning rates, takes the lowest loss.'
    )
    flags.DEFINE_enum(
        'residuals', 'log', ('log', 'linear', 'log10'), 'Of predicted over measured loss, or their difference.'
    )
    flags.DEFINE_float('delta', 1e-3, "Where Huber's parabola becomes a line; inf for least squares.", lower_bound=0)
    flags.DEFINE_integer('starts', 500, 'Of the search.', lower_bound=1)
    flags.DEFINE_enum('bootstrap', 'none', ('cells', 'points', 'none'), 'What is drawn for intervals.')
    flags.DEFINE_integer('replicates', 1000, 'How often it is drawn.', lower_bound=1)
    flags.DEFINE_integer('seed', 0, 'Of starts and bootstrap.', lower_bound=0)
    flags.DEFINE_string('out', None, 'A file for the fits, as other verbs read them.')
    flags.DEFINE_string('markdown', None, 'A file for the tables, or FILE.md#NAME for a marked place in it.')
    flags.mark_flags_as_required(['records', 'law'])


def run() -> None:
    """Fits, prints, and writes."""
    from smelt_jax import screen
    from smelt_jax.law import fitted, report
    from smelt_jax.law.fit import Settings, fits
    from smelt_jax.law.laws import law_named
    from smelt_jax.law.table import tables

    given = flags.FLAGS
    law = law_named(given.law)
    settings = Settings(given.residuals, given.delta, given.starts, given.seed, given.bootstrap, given.replicates)

    if given.out in given.records:
        raise ValueError(f'--records and --out are both {given.out}; give each a file of its own')

    def answer() -> screen.Answer:
        rows = (given.columns, given.by, given.cells, given.where, given.exclude, given.holdout, given.best)
        found = fits(tables(given.records, law, *rows), settings)
        if given.out:
            fitted.save(found, given.out)
        return report.answer(found)

    screen.give(answer, ' '.join(sys.argv), None, given.markdown, given.out)
