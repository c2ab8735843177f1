#!/usr/bin/env bash
# Photos in class folders → TFRecord shards → a trained model → its weights and a report.
#   examples/photos-to-model/run.sh [PHOTOS]      without a folder, photos are drawn
set -euo pipefail
paceline=${PACELINE:-paceline}
photos=${1:-photos}
if [[ ! -d $photos ]]; then
    "$paceline" data synth photos "$photos" --per-class "${PER_CLASS:-40}"
fi
"$paceline" prepare "$photos" shards --size 32 --shards 4 --split validation=0.2
if [[ -n ${MODEL:-} ]]; then
    "$paceline" train --model "$MODEL" --data shards --epochs "${EPOCHS:-10}" --batch-size 16 --out runs
else   # the smallest model, with a rate for so few photos
    "$paceline" train --model softmax --optimizer adam --lr 0.0003 --data shards --epochs "${EPOCHS:-60}" --batch-size 16 --out runs
fi
"$paceline" export runs/* model.safetensors
"$paceline" report runs/* --out report.html
