"""Golden files: the resolved config of every experiment and argument, tests/golden/EXPERIMENT/ARG.json.

    python tests/update_golden.py

writes them anew; `git diff tests/golden` then shows what a change does to every experiment there is.
"""

import importlib.util
import json
from pathlib import Path

from smelt_jax.config import resolve, to_dict

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / 'tests' / 'golden'


def experiments(folder: Path) -> list[Path]:
    """The experiment files of a folder; a name that starts with _ is none."""
    return sorted(folder.glob('[!_]*.py'))


def resolved(path: Path) -> dict[str, str]:
    """ARG.json → text, for every argument that the experiment lists in ARGS."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert isinstance(module.ARGS, tuple), f'{path}: ARGS is {module.ARGS!r}, not a tuple of the arguments it takes'
    return {f'{arg}.json': json.dumps(to_dict(resolve(module.get_config(arg))), indent=1) + '\n' for arg in module.ARGS}


def stale(folder: Path, golden: Path) -> dict[Path, str | None]:
    """Golden file → what should stand in it, for those in which it does not; None for one that should not be there."""
    wanted = {golden / path.stem / name: text for path in experiments(folder) for name, text in resolved(path).items()}
    found = {path: path.read_text() for path in golden.rglob('*.json')}
    return {path: wanted.get(path) for path in sorted(wanted | found) if wanted.get(path) != found.get(path)}


def main() -> None:
    """Brings tests/golden up to date."""
    for path, text in stale(ROOT / 'experiments', GOLDEN).items():
        print(path.relative_to(ROOT), 'is gone' if text is None else 'is written')
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


if __name__ == '__main__':
    main()
