#!/usr/bin/env bash
# The same training, slow for two reasons, and a program that is not ours; one report says why.
set -euo pipefail
paceline=${PACELINE:-paceline}
"$paceline" data synth digits digits --train "${TRAIN:-4000}" --test 500
"$paceline" train --model softmax --data digits --epochs 1 --batch-size 1 --out runs/tiny-batch
"$paceline" train --model softmax --data 'generated:digits?examples=2000' --epochs 2 --batch-size 100 --out runs/slow-input
"$paceline" report runs/tiny-batch runs/slow-input --out why.html
"$paceline" monitor --csv samples.csv -- sleep 2
