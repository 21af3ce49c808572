"""Names of hardware: what they mean, and one line for those that are none."""

import os

import pytest
from topologies import devices_of

from smelt_jax.aot.topology import CHIPS, Topology
from smelt_jax.aot.units import GIB, size


@pytest.mark.parametrize(
    ('name', 'slices', 'devices', 'memory'),
    [
        ('v5e:16x16', 1, 256, 15.75),
        ('v5p:4x4x4', 2, 128, 95.73),
        ('v6e:8x8', 1, 64, 31.24),
        ('v4:2x2x2', 1, 16, 15.25),  # two devices a chip
        ('h100:8', 1, 8, 59.7),
        ('cpu:8', 1, 8, 0),
    ],
)
def test_a_name_says_how_many_devices_of_how_much_memory(name, slices, devices, memory) -> None:
    topology = Topology.of(name, slices)
    assert topology.count == devices
    assert topology.memory / GIB == pytest.approx(memory)


def test_memory_can_be_given() -> None:
    topology = Topology.of('v5e:2x4', memory=8 * GIB)
    assert (topology.memory, topology.memory_source) == (8 * GIB, 'as given')


@pytest.mark.parametrize(
    ('name', 'slices', 'complaint'),
    [
        ('v9:2x2', 1, "no hardware 'v9'; there are v4, v5e, v5p"),
        ('v5e', 1, 'TPU v5e is v5e:AxB'),
        ('v5e:2x2x2', 1, 'TPU v5e is v5e:AxB'),
        ('v5p:4x4', 1, 'TPU v5p is v5p:AxBxC'),
        ('v5e:0x4', 1, 'TPU v5e is v5e:AxB'),
        ('v5e:2xtwo', 1, 'TPU v5e is v5e:AxB'),
        ('cpu:', 1, 'CPU is cpu:N'),
        ('cpu:8', 2, 'mesh.slices=2 is for TPUs'),
    ],
)
def test_a_wrong_name_is_told_how_it_would_be_right(name: str, slices: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=f'^--topology={name}: ') as error:
        Topology.of(name, slices)
    assert complaint in str(error.value)
    assert '\n' not in str(error.value)


def test_the_compiler_for_it_has_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('smelt_jax.aot.topology._installed', lambda package: False)
    before = dict(os.environ)
    with pytest.raises(ValueError, match=r'H100 SXM is not installed; pip install -e \.\[cuda\]'):
        Topology.of('h100:8').prepare()
    assert dict(os.environ) == before


def test_more_cpus_than_jax_was_started_with_are_refused() -> None:
    with pytest.raises(ValueError, match='jax was started with 8 CPU devices'):
        Topology.of('cpu:9').devices()
    assert len(Topology.of('cpu:4').devices()) == 4


def test_the_table_counts_devices_as_the_compiler_does() -> None:
    devices_of('v5e:2x4')  # skips without libtpu
    for name in ('v4:2x2x1', 'v5e:2x4', 'v5p:2x2x1', 'v6e:2x4', 'tpu7x:2x2x1'):
        topology = Topology.of(name)
        assert len(topology.devices()) == topology.count, name
    with pytest.raises(ValueError, match='v5e:3x5'):
        Topology.of('v5e:3x5').devices()


def test_every_chip_says_where_its_memory_is_from() -> None:
    assert all(chip.source for chip in CHIPS.values())


def test_bytes_for_people() -> None:
    assert [size(count) for count in (0, 1000, 1536, -(2.0**30), 2.0**60)] == [
        '0 B',
        '1000 B',
        '1.50 KiB',
        '-1.00 GiB',
        '1048576.00 TiB',
    ]
