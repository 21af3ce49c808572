#!/usr/bin/env bash
# Fits every law to public tables of measured losses and to tables whose truth is known, and compares. About five minutes on two cores;
# writes the table of docs/laws.md. Ends with 1 if a figure is not as it should be. Sets up .venv first if it is not there.
# SMELT_TEST_LAWS is the folder of the public tables; by default shared/data/laws beside the repository.
#
#     launch/laws.sh                        all of it
#     launch/laws.sh --short                the public tables alone, half a minute; nothing is written
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

cd "$ROOT"
use_venv .venv tested dev 3.11
PYTHONPATH=$ROOT:$ROOT/tests exec .venv/bin/python -m lawcheck "$@"
