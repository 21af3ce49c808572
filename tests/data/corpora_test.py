"""Readers of text, and what they say about text that is not as it should be."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smelt_jax.data import corpora, made
from smelt_jax.data.documents import Document, Tally

LINES = [
    {'text': 'one', 'domain': 'Web', 'source': 'pages'},
    {'text': 'zwei 🙂', 'domain': 'Code', 'source': 'lib'},
    {'text': ''},
]


def read(*specs: str, invalid_utf8: str = 'replace', tally: Tally | None = None) -> list[Document]:
    return list(corpora.read(specs, invalid_utf8, tally or Tally(), lambda name: None))


def jsonl(path: Path, *lines: object) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b''.join(line if isinstance(line, bytes) else json.dumps(line).encode() + b'\n' for line in lines))
    return f'jsonl:{path}'


def test_json_lines_plain_and_gz_say_the_same(tmp_path: Path) -> None:
    plain = jsonl(tmp_path / 'talks' / 'a.train.jsonl', *LINES, b'\n')
    (tmp_path / 'talks' / 'a.train.jsonl.gz').write_bytes(gzip.compress(Path(plain[6:]).read_bytes()))
    expected = [Document('one', 'Web', 'pages'), Document('zwei 🙂', 'Code', 'lib'), Document('', 'talks', 'a')]
    assert read(plain) == expected
    assert read(f'jsonl:{tmp_path}/*/*.gz') == expected
    assert read(f'jsonl:{tmp_path}/**/*.jsonl*') == expected * 2


@pytest.mark.parametrize('kind', [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())])
def test_parquet_says_the_same(tmp_path: Path, kind: pa.DataType) -> None:
    texts = [line['text'] for line in LINES]
    text = (
        pa.array([t.encode() for t in texts], kind) if kind == pa.binary() else pa.array(texts, pa.string()).cast(kind)
    )
    table = pa.table({'text': text, 'id': [1, 2, 3], 'source': ['pages', 'lib', None]})
    pq.write_table(table, tmp_path / 'talks.parquet')
    domain = tmp_path.name
    assert read(f'parquet:{tmp_path}/*.parquet') == [
        Document('one', domain, 'pages'), Document('zwei 🙂', domain, 'lib'), Document('', domain, 'talks'),
    ]  # fmt: skip


def test_text_folders_name_domain_and_source(tmp_path: Path) -> None:
    for name in ['notes/a.txt', 'notes/code/lib/deep/b.py', 'notes/code/c.py', 'notes/.git/config', 'notes/code/.x']:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert [(d.text, d.domain, d.source) for d in read(f'text:{tmp_path}/notes')] == [
        ('notes/a.txt', 'notes', 'notes'),
        ('notes/code/c.py', 'code', 'code'),
        ('notes/code/lib/deep/b.py', 'code', 'lib'),
    ]


def test_invalid_utf8_is_replaced_and_counted(tmp_path: Path) -> None:
    (tmp_path / 'a.txt').write_bytes('ok \ufffd '.encode() + b'\xff\xfe bad \xe6\x9d')
    tally = Tally()
    assert read(f'text:{tmp_path}', tally=tally)[0].text == 'ok \ufffd \ufffd\ufffd bad \ufffd'
    assert tally.replaced_utf8 == 3  # the one that was meant is not counted


def test_invalid_utf8_is_refused_with_file_and_offset(tmp_path: Path) -> None:
    first = '{"text": "éé"}\n'.encode()
    spec = jsonl(tmp_path / 'a.jsonl', first, b'{"text": "\xff"}\n')
    offset = len(first) + len('{"text": "')  # bytes, not characters
    with pytest.raises(ValueError, match=rf'a\.jsonl, line 2: invalid UTF-8 at byte {offset};.*invalid_utf8=replace'):
        read(spec, invalid_utf8='refuse')
    assert read(spec)[1].text == '\ufffd'


def test_a_lone_surrogate_is_invalid_utf8_too(tmp_path: Path) -> None:
    spec = jsonl(tmp_path / 'a.jsonl', rb'{"text": "a\ud83d b \ud83d\ude42"}' + b'\n')
    tally = Tally()
    assert read(spec, tally=tally)[0].text == 'a\ufffd b 🙂'
    assert tally.replaced_utf8 == 1
    with pytest.raises(ValueError, match='line 1: text holds a lone surrogate'):
        read(spec, invalid_utf8='refuse')


@pytest.mark.parametrize(
    ('line', 'complaint'),
    [
        (b'{"txt": "a"}\n', 'a.jsonl, line 2: no field text'),
        (b'{"text": 3}\n', 'a.jsonl, line 2: no field text that is a string'),
        (b'{"text": null}\n', 'a.jsonl, line 2: no field text that is a string'),
        (b'["text"]\n', 'a.jsonl, line 2: no field text'),
        (b'{"text": "a\n', 'a.jsonl, line 2: not JSON'),
        (b'[' * 100_000 + b'\n', 'a.jsonl, line 2: not JSON .maximum recursion depth'),
        ('{"text": "a"}\n'.encode('utf-16-le'), 'a.jsonl, line 2: not JSON .*looks like UTF-16: save it as UTF-8'),
        (b'{"text": "a", "domain": 3}\n', 'a.jsonl, line 2: domain=3 is not a string'),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read(jsonl(tmp_path / 'a.jsonl', LINES[0], line))


def test_parquet_without_text_names_its_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({'content': ['a'], 'url': ['b']}), tmp_path / 'a.parquet')
    with pytest.raises(ValueError, match=r'a\.parquet: no column text; it has content, url'):
        read(f'parquet:{tmp_path}/a.parquet')


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    (tmp_path / 'gone.jsonl').symlink_to(tmp_path / 'nowhere')
    (tmp_path / 'folder.jsonl').mkdir()
    (tmp_path / 'cut.jsonl.gz').write_bytes(gzip.compress(b'{"text": "a"}\n' * 1000)[:40])
    (tmp_path / 'no.jsonl.gz').write_bytes(b'{"text": "a"}\n')
    (tmp_path / 'no.parquet').write_bytes(b'PAR')
    for name in ['gone.jsonl', 'folder.jsonl', 'cut.jsonl.gz', 'no.jsonl.gz']:
        with pytest.raises(ValueError, match=rf'cannot read .*{name}: .*; repair or remove'):
            read(f'jsonl:{tmp_path}/{name}')
    with pytest.raises(ValueError, match=r'cannot read .*no\.parquet: .*; repair or remove'):
        read(f'parquet:{tmp_path}/*.parquet')
    (tmp_path / 'texts').mkdir()
    (tmp_path / 'texts' / 'gone.txt').symlink_to(tmp_path / 'nowhere')
    with pytest.raises(ValueError, match=r'cannot read .*gone\.txt: '):
        read(f'text:{tmp_path}/texts')


@pytest.mark.parametrize(
    ('spec', 'complaint'),
    [
        ('jsonl:{}/none/*.jsonl', 'matches no file'),
        ('parquet:{}/*.parquet', 'matches no file'),
        ('text:{}/none', 'is not a folder'),
        ('text:{}', 'matches no file'),
        ('csv:{}', 'expected one of local'),
        ('jsonl', 'expected one of local'),
        ('local:{}', 'expected one of local'),
        ('made', 'expected one of local.*made:NAME'),
        ('made:dyck+dick', "'dick' is no made-up text; there are dyck, copy, arithmetic, induction"),
        ('made:dyck:0', "'0' is no number of documents; write a whole one"),
        ('made:dyck:', "'' is no number of documents"),
        ('made:dyck:1.5', "'1.5' is no number of documents"),
    ],
)
def test_a_bad_spec_is_named(tmp_path: Path, spec: str, complaint: str) -> None:
    spec = spec.format(tmp_path)
    with pytest.raises(ValueError, match=complaint) as error:
        read(spec)
    assert repr(spec) in str(error.value)


def test_identity_is_of_contents_and_names(tmp_path: Path) -> None:
    for place in ('here', 'there'):
        jsonl(tmp_path / place / 'a.jsonl', *LINES)
        (tmp_path / place / 'talks').mkdir()
        jsonl(tmp_path / place / 'talks' / 'b.jsonl', LINES[1])
    one = corpora.identity([f'jsonl:{tmp_path}/here/*/*.jsonl'])
    assert list(one) == ['jsonl[0]/here/talks/b.jsonl']
    assert list(one.values()) == list(corpora.identity([f'jsonl:{tmp_path}/there/*/*.jsonl']).values())
    jsonl(tmp_path / 'here' / 'talks' / 'b.jsonl', LINES[0] | {'text': 'eno'})  # the same size
    assert corpora.identity([f'jsonl:{tmp_path}/here/*/*.jsonl']) != one
    assert len(corpora.identity([f'jsonl:{tmp_path}/here/*.jsonl', f'jsonl:{tmp_path}/there/*.jsonl'])) == 2


def test_made_up_text_is_read_name_by_name() -> None:
    expected = [Document(made.document(name, i), 'Made', name) for name in ('copy', 'dyck') for i in range(3)]
    assert read('made:copy+dyck:3') == expected
    assert len(read('made:arithmetic')) == made.DOCUMENTS


def test_identity_of_made_up_text_is_of_names_number_and_text(monkeypatch: pytest.MonkeyPatch) -> None:
    one = corpora.identity(['made:copy+dyck:3'])
    assert list(one) == ['made[0]/copy:3', 'made[0]/dyck:3']
    assert one == corpora.identity(['made:copy+dyck:3']) != corpora.identity(['made:copy+dyck:4'])
    monkeypatch.setattr(made, 'DELIMITER', ' -> ')
    assert not set(one.values()) & set(corpora.identity(['made:copy+dyck:3']).values())
