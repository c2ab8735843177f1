#!/usr/bin/env bash
# A published experiment at a hundredth of its size, its figures beside ours.
set -euo pipefail
paceline=${PACELINE:-paceline}
"$paceline" sweep "${RECIPE:-softmax-batch}" --scale "${SCALE:-0.01}" --repeats "${REPEATS:-1}" --out table
