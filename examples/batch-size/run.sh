#!/usr/bin/env bash
# Which batch size: the advice, and a sweep that checks it.
set -euo pipefail
paceline=${PACELINE:-paceline}
"$paceline" data synth digits digits --train "${TRAIN:-4000}" --test 500
"$paceline" --json advise batch --model softmax --data digits --sizes 16,64,256 --warm-up 20 --gradients 8 > advice.json
"$paceline" sweep --vary batch-size=16,64,256 --repeats "${REPEATS:-1}" --out sweep -- train --model softmax --data digits --epochs 1
