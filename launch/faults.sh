#!/usr/bin/env bash
# Disturbs a small run in every way that is thought of, runs it again until it is done, and compares it with one that nobody
# disturbed. About 40 minutes on two cores; writes the table of docs/reliability.md. Ends with 1 if something was lost. Sets up
# .venv first if it is not there. Further arguments choose and change lines; --help says how.
#
#     launch/faults.sh                      all of it
#     launch/faults.sh SIGKILL save         the lines that have these words
#     launch/faults.sh --part=damage        one of kills, signals, disks, damage, company; its table
#     launch/faults.sh --seed=1             at other moments
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

cd "$ROOT"
use_venv .venv tested dev 3.11
PYTHONPATH=$ROOT:$ROOT/tests exec .venv/bin/python -m faults "$@"
