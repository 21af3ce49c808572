"""A branch goes on where its trunk stood: its rate, its rows, its moments. What cannot be branched from is refused."""

import json
import math
import os
import shutil
from pathlib import Path

import pytest
from models import assert_same
from runs_helper import RUN, make_pack, smelt_killed, state_at, times_of, without_clock

from smelt_jax.data.rows import PackedRows, row_ids
from smelt_jax.parallel.devices import one_device
from smelt_jax.runs import RunDir, config_fingerprint
from smelt_jax.train import loop
from smelt_jax.train.branch import branch
from smelt_jax.train.step import make_step

pytestmark = pytest.mark.usefixtures('quick')
STEP, STEPS = 10, 7  # where the branch starts, and its updates
TOKENS = 400  # six updates and a bit: rounded up


@pytest.fixture(scope='module')
def branched(trunk: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, list[list[int]]]:
    """A branch from step 10, and the rows of its updates as the loop was given them."""
    seen = []

    def watched(*args):
        for step, ids, batch in batches(*args):
            seen.append([step, *ids.tolist()])
            yield step, ids, batch

    batches = loop.train_batches
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, 'train_batches', watched)
        run_dir = branch(str(trunk), STEP, str(tmp_path_factory.mktemp('branched') / 'leaf'), TOKENS)
    return run_dir, seen


def copy_of(trunk: Path, folder: Path, **data: str) -> Path:
    """The trunk at another place, with other values in the `data` of its config."""
    copy = folder / 'trunk'
    shutil.copytree(trunk, copy)
    config = json.loads((copy / 'config.json').read_text())
    config['data'] |= data
    (copy / 'config.json').write_text(json.dumps(config))
    return copy


def test_the_rate_starts_at_the_trunks_and_follows_the_cosine(trunk: Path, branched: tuple) -> None:
    lines = branched[0].metrics()
    assert [line['step'] for line in lines] == list(range(STEP + 1, STEP + STEPS + 1))
    rates = [line['lr'] for line in lines]
    assert rates[0] == RunDir(trunk).metrics()[STEP]['lr'] == pytest.approx(RUN.optim.peak_lr)
    cosine = [(1 + math.cos(math.pi * done / STEPS)) / 2 for done in range(STEPS)]
    assert rates == pytest.approx([RUN.optim.peak_lr * factor for factor in cosine])


def test_the_rate_ends_at_the_fraction_that_is_asked_for(trunk: Path, tmp_path: Path) -> None:
    copy = copy_of(trunk, tmp_path)
    config = json.loads((copy / 'config.json').read_text())
    config['train']['final_lr_fraction'] = 0.25
    (copy / 'config.json').write_text(json.dumps(config))
    (first, second) = (line['lr'] for line in branch(str(copy), STEP, str(tmp_path / 'leaf'), 2 * 64).metrics())
    assert (first, second) == pytest.approx((1e-2, 1e-2 * (1 + 0.25) / 2))


def test_the_first_row_is_the_trunks_next_one(trunk: Path, branched: tuple) -> None:
    data = RunDir(trunk).config().data
    rows = PackedRows(data.pack, 'train')
    assert branched[1][:STEPS] == [[step, *row_ids(rows, data, step)] for step in range(STEP, STEP + STEPS)]
    read_by_trunk = {row for step in range(STEP) for row in row_ids(rows, data, step)}
    assert read_by_trunk.isdisjoint(row for _, *ids in branched[1] for row in ids)


def test_the_first_update_is_the_one_that_the_trunk_made(trunk: Path, tmp_path: Path) -> None:
    """The same parameters, moments, count, rows and rate: so the same state and metrics, bit for bit."""
    leaf = branch(str(trunk), STEP, str(tmp_path / 'leaf'), 64)
    assert_same(state_at(leaf, STEP + 1), state_at(RunDir(trunk), STEP + 1))
    assert without_clock(leaf.metrics()) == without_clock(RunDir(trunk).metrics()[STEP : STEP + 1])


def test_a_branch_runs_the_program_that_was_compiled_for_its_trunk(trunk: Path, tmp_path: Path) -> None:
    programs = make_step(RUN.model, RUN.loss, RUN.optim, one_device())._cache_size()
    branch(str(trunk), 5, str(tmp_path / 'leaf'), TOKENS)
    assert make_step(RUN.model, RUN.loss, RUN.optim, one_device())._cache_size() == programs == 1


def test_the_optimizer_goes_on_counting(branched: tuple) -> None:
    state = state_at(branched[0], STEP + STEPS)
    assert state.step == state.opt_state[1].count == STEP + STEPS


def test_lineage_names_the_trunk_its_step_and_the_fingerprints(trunk: Path, branched: tuple) -> None:
    lineage, parent = branched[0].lineage(), RunDir(trunk)
    assert (lineage.kind, lineage.start, lineage.stop) == ('branch', STEP, STEP + STEPS)
    assert (branched[0].path / lineage.trunk).resolve() == trunk.resolve()
    assert lineage.trunk_config == config_fingerprint(parent.config())
    assert (lineage.pack, lineage.tokenizer) == (parent.lineage().pack, parent.lineage().tokenizer)


def test_a_branch_that_is_killed_goes_on(trunk: Path, branched: tuple, tmp_path: Path, quick_env: dict) -> None:
    """After its own checkpoint of step 15, in processes of its own; the branch above was never interrupted."""
    args = ('branch', f'--trunk={trunk}', '--step=10', f'--workdir={tmp_path}/leaf')
    killed, process = RunDir(tmp_path / 'leaf'), {'rows': tmp_path / 'rows', 'env': quick_env}
    assert smelt_killed(*args, KILL_AT=16, THERE=killed.checkpoints / '15', **process) == -9
    assert smelt_killed(*args, **process) == 0
    assert_same(state_at(killed, 17), state_at(branched[0], 17))
    assert without_clock(killed.metrics()) == without_clock(branched[0].metrics())
    assert [line['step'] for line in killed.metrics()] == list(range(11, 18))


def test_a_branch_that_is_done_is_left_alone(trunk: Path, branched: tuple) -> None:
    run_dir, _ = branched
    before = times_of(run_dir)
    branch(str(trunk), STEP, str(run_dir.path), TOKENS)
    assert times_of(run_dir) == before


def test_the_trunk_may_move(trunk: Path, branched: tuple, tmp_path: Path) -> None:
    """Before a branch is made, and after: its directory is still this branch's."""
    moved = copy_of(trunk, tmp_path)
    assert (
        branch(str(moved), STEP, str(tmp_path / 'leaf'), TOKENS).metrics()[0]['loss']
        == branched[0].metrics()[0]['loss']
    )
    branch(str(moved), STEP, str(branched[0].path), TOKENS)


@pytest.mark.parametrize('spelling', ['{}', '{}/.', '{}/../trunk'])
def test_a_branch_has_a_directory_of_its_own(trunk: Path, spelling: str) -> None:
    before = (trunk / 'lineage.json').read_text()
    with pytest.raises(ValueError, match=r"cannot live in its trunk's directory .*; give --workdir another one"):
        branch(str(trunk), STEP, spelling.format(trunk), TOKENS)
    assert (trunk / 'lineage.json').read_text() == before


def test_a_branch_bears_no_branches(branched: tuple, tmp_path: Path) -> None:
    """Its rate has fallen: what grew there would be no annealed trunk."""
    with pytest.raises(ValueError, match=r'leaf is a branch, annealed from .*trunk; branches start from a trunk'):
        branch(str(branched[0].path), STEP + STEPS, str(tmp_path / 'twig'), TOKENS)
    assert not (tmp_path / 'twig').exists()


@pytest.mark.parametrize(
    ('step', 'tokens', 'complaint'),
    [
        (7, TOKENS, r'has no checkpoint of step 7; it has \[5, 10, 11, 12\]'),
        (0, TOKENS, r'has no checkpoint of step 0; it has \[5, 10, 11, 12\]'),
        (STEP, 0, r'a branch of 0 tokens: give --tokens, or train.branch_tokens'),
        (STEP, 10**6, r'steps 10 to 15635 need 31270 rows; .* has \d+, enough for \d+ steps'),
    ],
)
def test_what_the_trunk_cannot_give_is_refused(
    trunk: Path, tmp_path: Path, step: int, tokens: int, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        branch(str(trunk), step, str(tmp_path / 'leaf'), tokens)
    assert not os.listdir(tmp_path)


def test_another_branchs_directory_is_refused(trunk: Path, branched: tuple) -> None:
    with pytest.raises(ValueError, match=r'belongs to another run, which differs in lineage\.start: 10 -> 5'):
        branch(str(trunk), 5, str(branched[0].path), TOKENS)


def test_rows_that_were_packed_anew_are_refused(trunk: Path, tmp_path: Path) -> None:
    (tmp_path / 'text').mkdir()
    other = make_pack(tmp_path / 'text', seed=1)
    with pytest.raises(ValueError, match=r'was packed anew since the trunk .* read it'):
        branch(str(copy_of(trunk, tmp_path, pack=str(other))), STEP, str(tmp_path / 'leaf'), TOKENS)
    assert not (tmp_path / 'leaf').exists()
