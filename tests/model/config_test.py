"""A model that cannot be built is refused with the value and the remedy."""

import pytest
from models import TINY, edit, looped

IMPOSSIBLE = [
    ({'attention__heads': 5}, r'heads=5 is not divisible by kv_heads=2; choose kv_heads that divide'),
    ({'attention__head_dim': 7}, r'head_dim=7 is odd'),
    ({'experts__per_token': 9}, r'experts.count=5 is less than per_token=9; add experts or use fewer'),
    ({'width': 0}, r'model.width=0: must be at least 1'),
    ({'vocab': 2**31}, r'model.vocab=2147483648: must be at least 1 and below 2'),
    ({'init_std': -1.0}, r'model.init_std=-1.0: must be more than 0'),
    ({'norm_eps': 0.0}, r'model.norm_eps=0.0: must be more than 0'),
    ({'attention__rope_theta': 0.0}, r'model.attention.rope_theta=0.0: must be more than 0'),
    ({'experts__width': -3}, r'model.experts.width=-3: must be at least 1'),
    ({'loop__visits': 0}, r'model.loop.visits=0: must be at least 1'),
    ({'loop__start': 3}, r'start=3 and length=2 do not fit into layers=4'),
    ({'loop__start': -1}, r'start=-1 and length=2 do not fit'),
    ({'loop__length': 0}, r'visits=2 with length=0: set loop.length, or visits=1'),
    ({'dtype': 'float16'}, r"model.dtype='float16': choose one of float32, bfloat16"),
    ({'remat': 'all'}, r"model.remat='all': choose one of none, layer, dots"),
]


@pytest.mark.parametrize(('changes', 'complaint'), IMPOSSIBLE, ids=[next(iter(changes)) for changes, _ in IMPOSSIBLE])
def test_an_impossible_model_is_refused(changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        edit(TINY, **changes)


@pytest.mark.parametrize(('start', 'length', 'coda', 'visits'), [(1, 2, 3, 4), (0, 5, 0, 2), (3, 0, 1, 1)])
def test_executed_layers_count_the_loop_once_a_visit(start, length, coda, visits):
    model = looped(start, length, coda, visits)
    assert model.coda_layers == coda
    assert model.executed_layers == start + length * visits + coda
