"""Tables of tasks: what is named is found, in any table that lies there, and what is wrong is said in one line."""

import sys
import types
from pathlib import Path

import pytest
from etils import epath
from task_files import REAL, example, rows, write

import smelt_jax.data
from smelt_jax.tasks.reading import examples
from smelt_jax.tasks.tables import is_made, tasks_of
from smelt_jax.tasks.task import Task

HEAD = 'task,file,icl_type,num_fewshot,random_baseline,continuation_delimiter'
CORE = f"""{HEAD}
colours,mc.jsonl,multiple_choice,10,40.3, ,
winds,schema.jsonl,schema,0,50,
lines,lm.jsonl,language_modeling,3,0,\\nAnswer:\x20
"""


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two generators, of which nothing is read but what is asked here."""
    module = types.ModuleType('smelt_jax.data.made')
    module.MADE, module.CHANCE, module.DELIMITER, module.JOINT = ('dyck', 'copy'), {'dyck': 0.1, 'copy': 0}, ' ', '\n'  # type: ignore[attr-defined]
    module.pairs = lambda name, count, seed, heldout: [(f'{name} {seed} {i} {heldout}', 'x') for i in range(count)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, 'smelt_jax.data.made', module)
    monkeypatch.setattr(smelt_jax.data, 'made', module, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> epath.Path:
    """CORE.csv, its files, and a table of a user."""
    (tmp_path / 'CORE.csv').write_text(CORE.replace('40.3, ,', '40.3, '))
    for name, kind in (
        ('mc', 'multiple_choice'),
        ('schema', 'schema'),
        ('lm', 'language_modeling'),
        ('g', 'generation'),
    ):
        write(tmp_path / f'{name}.jsonl', rows(kind))
    (tmp_path / 'Mine.csv').write_text(
        'task,icl_type,file,cot_delimiter,question_prelimiter,joint,normalise,random_baseline,shot_file,by_category\n'
        'sums,generation_task_with_answers,g.jsonl, #### ,Q: ,\\n\\n,byte,,,\n'
        'more,multiple_choice,mc.jsonl,,,,,25,dev.jsonl,true\n'
        'dev,multiple_choice,dev.jsonl,,,,,25,,\n'
        'code,code_evaluation,code.jsonl,,,,,,,\n'
    )
    write(tmp_path / 'dev.jsonl', rows('multiple_choice'))
    return epath.Path(tmp_path)


def names(asked: list[str], folder: epath.Path) -> list[str]:
    return [task.name for task in tasks_of(asked, folder, lambda line: None)]


def test_columns_become_fields(folder: epath.Path) -> None:
    colours, winds, lines = tasks_of(['core'], folder)
    assert colours == Task('colours', 'multiple_choice', 'mc.jsonl', 10, 0.403, ' ', group='core')
    assert (winds.delimiter, winds.kind, winds.shots) == (' ', 'schema', 0)
    assert lines.delimiter == '\nAnswer: '
    sums, more = tasks_of(['sums', 'more'], folder)
    assert sums == Task(
        'sums', 'generation', 'g.jsonl', 0, 0.0, ' ', 'Q: ', '\n\n', ' #### ', 'byte', group='mine'
    )  # fmt: skip
    assert (more.shot_file, more.by_category) == ('dev.jsonl', True)


def test_names_groups_patterns_and_generators(folder: epath.Path) -> None:
    assert names(['lines', 'core', 'lines'], folder) == ['lines', 'colours', 'winds']
    assert names(['mine'], folder) == ['sums', 'more']
    assert names(['all'], folder) == ['colours', 'winds', 'lines', 'sums', 'more']
    assert names(['*s'], folder) == ['colours', 'winds', 'lines', 'sums']
    assert names(['dev'], folder) == ['dev']
    assert names(['made'], folder) == names(['made:*'], folder) == ['made:dyck', 'made:copy']
    (dyck,) = tasks_of(['dyck'], epath.Path('/nowhere'))
    assert is_made(dyck)
    assert (dyck.kind, dyck.chance, dyck.group, dyck.delimiter) == ('language_modeling', 0.1, 'made', ' ')
    found = examples(dyck, epath.Path('/nowhere'))
    assert len(found) == 256
    assert found[1].candidates == [('dyck 0 1 True', 'x')]


def test_what_a_group_leaves_out_is_told(folder: epath.Path) -> None:
    told: list[str] = []
    tasks_of(['mine'], folder, told.append)
    assert told == [
        'dev is left out of mine: it holds the shots of more',
        'code is left out of mine: code_evaluation is not supported',
    ]


def test_files_may_be_gz(folder: epath.Path) -> None:
    import gzip

    plain = folder / 'mc.jsonl'
    before = examples(tasks_of(['colours'], folder)[0], folder)
    (folder / 'mc.jsonl.gz').write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    (task,) = tasks_of(['colours'], folder)
    assert examples(task, folder) == before == [example('multiple_choice', i) for i in range(12)]


@pytest.mark.parametrize(
    ('asked', 'complaint'),
    [
        (
            ['nope'],
            r"there is no task 'nope'; there are the groups core, mine, all, made and the tasks colours, .*made:copy",
        ),
        (['co*urx'], r"there is no task 'co\*urx'"),
        ([], 'no task is named; there are'),
        (['code'], 'code is of kind code_evaluation: its answers are judged by running them'),
    ],
)
def test_names_that_nothing_has(folder: epath.Path, asked: list[str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as error:
        tasks_of(asked, folder)
    assert '\n' not in str(error.value)


def test_of_many_tasks_those_that_are_spelled_alike_are_named(folder: epath.Path) -> None:
    lines = ''.join(f'task{i},mc.jsonl,schema,50\n' for i in range(20))
    (folder / 'LONG.csv').write_text('task,file,icl_type,random_baseline\n' + lines)
    with pytest.raises(ValueError, match=r'and \d+ tasks, as colours$'):
        tasks_of(['colour'], folder)
    with pytest.raises(ValueError, match=r'and \d+ tasks$'):
        tasks_of(['qqq'], folder)


def test_without_tables_the_folder_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'no task .core.; .* others are in the folder that --task_dir=DIR names'):
        tasks_of(['core'], epath.Path(tmp_path))


def test_a_folder_or_a_file_that_is_not_there(folder: epath.Path) -> None:
    with pytest.raises(ValueError, match="/nowhere is not there, and 'core' is no generator"):
        tasks_of(['core'], epath.Path('/nowhere'))
    (folder / 'dev.jsonl').unlink()
    with pytest.raises(ValueError, match=r'dev\.jsonl of task more is not there'):
        tasks_of(['more'], folder)


@pytest.mark.parametrize(
    ('table', 'complaint'),
    [
        ('', 'has no column task'),
        ('task,file\n', 'has no column icl_type'),
        ('task,file,icl_type,file\n', "two columns 'file'"),
        (f'{HEAD}\na,b,multiple_choice\n', 'line 2: has 3 values for 6 columns'),
        (f'{HEAD}\n,b,multiple_choice,0,25,\n', 'line 2: task is empty'),
        (f'{HEAD}\na,b,guessing,0,25,\n', "line 2: icl_type is 'guessing'; it is one of multiple_choice, schema"),
        (f'{HEAD}\na,b,multiple_choice,-1,25,\n', "line 2: num_fewshot is '-1'"),
        (f'{HEAD}\na,b,multiple_choice,0,x,\n', "line 2: random_baseline is 'x'"),
        (f'{HEAD}\na,b,multiple_choice,0,100,\n', 'line 2: random_baseline is 100; it is per cent'),
        (f'{HEAD}\na,b,schema,0,,\n', 'line 2: random_baseline is empty'),
        (f'{HEAD},normalise\na,b,schema,0,50,,words\n', "line 2: normalise is 'words'; it is one of raw, character"),
        (f'{HEAD},by_category\na,b,schema,0,50,,maybe\n', "line 2: by_category is 'maybe'"),
        (f'{HEAD}\ncolours,b,schema,0,50,\n', r'New\.csv, line 2 and .*CORE\.csv, line 2 are both of task colours'),
        (f'{HEAD}\n"a,b\n', 'is no CSV file'),
        (f'{HEAD}\nheldout,b,schema,0,50,\n', "line 2: a task cannot be called 'heldout'"),
        (f'{HEAD}\n../x,b,schema,0,50,\n', "line 2: a task cannot be called '../x'"),
        (f'{HEAD}\nmade:dyck,b,schema,0,50,\n', "line 2: a task cannot be called 'made:dyck'"),
        (
            f'{HEAD}\nnew,b,schema,0,50,\n',
            r'line 2: the table is called new, as is the task of .*New\.csv, line 2; rename',
        ),
        (f'{HEAD}\nmade,b,schema,0,50,\n', "line 2: a task cannot be called 'made'"),
        (
            f'{HEAD}\n{"x" * 121},b,schema,0,50,\n',
            r'task xxxxxxxxxxxxxxxxxxxx… has a name of 121 bytes; .* 120 at most',
        ),
        (f'{HEAD}\na,b,schema,{"9" * 5000},50,\n', 'line 2: num_fewshot is .*; it is a whole number, 0 or more'),
        (f'{HEAD}\na,b,schema,\u0661,50,\n', 'line 2: num_fewshot is'),
        (f'{HEAD}\na,b,schema,0,5_0,\n', "line 2: random_baseline is '5_0'"),
        (f'{HEAD}\na,b,schema,0,-0,\n', "line 2: random_baseline is '-0'"),
        (f'{HEAD}\na,b,schema,0,99.9999999999999,\n', 'it is per cent, from 0 to below 100'),
        (f'{HEAD}\na,made:dyck,schema,0,50,\n', 'line 2: file is made:dyck; what is made is asked for by that name'),
    ],
)
def test_tables_that_are_wrong(folder: epath.Path, table: str, complaint: str) -> None:
    (folder / 'New.csv').write_text(table)
    with pytest.raises(ValueError, match=complaint) as error:
        tasks_of(['core'], folder)
    assert '\n' not in str(error.value)


def test_two_tables_of_one_group(folder: epath.Path) -> None:
    (folder / 'Core.csv').write_text(f'{HEAD}\na,b,schema,0,50,\n')
    with pytest.raises(ValueError, match=r'CORE\.csv and .*Core\.csv are both the group core; rename one'):
        tasks_of(['colours'], folder)


@pytest.mark.skipif(not REAL.exists(), reason='no task files here')
def test_the_published_tables() -> None:
    told: list[str] = []
    found = {task.name: task for task in tasks_of(['all'], REAL, told.append)}
    assert sum(task.group == 'core' for task in found.values()) == 22
    assert [line.split()[0] for line in told] == ['human_eval', 'mmlu_dev', 'mbpp']
    mmlu = found['mmlu']
    assert (mmlu.shots, mmlu.by_category, mmlu.shot_file, mmlu.chance) == (5, True, 'mmlu_dev.jsonl', 0.25)
    assert found['arc_easy'].delimiter == '\nAnswer: '
    assert found['math'].shots == 0
    assert found['gsm8k'].reasoning == ' #### '
    for task in found.values():
        assert len(examples(task, REAL)) >= 30
