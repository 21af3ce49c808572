#!/usr/bin/env bash
# The main job, on nothing but Python >= 3.11: sets up .venv, then pretrains, anneals and compares a Baseline and a looped
# model of one budget on text that is already on this machine. About seven minutes on two cores. Kill it at any moment and
# run it again: it goes on where it was. Further arguments go to `smelt sweep`.
#
#     launch/quickstart.sh [--workdir=runs/quickstart]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

cd "$ROOT"
use_venv .venv tested run 3.11
exec .venv/bin/smelt sweep --experiment=experiments/quickstart.py --workdir=runs/quickstart "$@"
