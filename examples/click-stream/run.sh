#!/usr/bin/env bash
# A click log through standard input, scored row by row before it is learned from; then probabilities for new rows.
set -euo pipefail
paceline=${PACELINE:-paceline}
"$paceline" data synth clicks clicks.tsv --rows "${ROWS:-20000}"
"$paceline" data synth clicks tomorrow.tsv --rows 2000 --seed 7
cat clicks.tsv | "$paceline" train --model sparse-logistic --data - --bits 18 --out runs
"$paceline" predict runs/* tomorrow.tsv --out probabilities.txt
