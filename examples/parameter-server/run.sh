#!/usr/bin/env bash
# One parameter server, three workers: asynchronous, with a limit on staleness, and synchronous.
set -euo pipefail
paceline=${PACELINE:-paceline}
"$paceline" data synth digits digits --train "${TRAIN:-4000}" --test 500
common=(--model softmax --data digits --workers 3 --ps 1 --epochs 2 --batch-size 50)
"$paceline" train "${common[@]}" --strategy ps-async --out runs/async
"$paceline" train "${common[@]}" --strategy ps-async --max-staleness 1 --out runs/limited
"$paceline" train "${common[@]}" --strategy ps-sync --out runs/sync
"$paceline" report runs/async runs/limited runs/sync --out servers.html
"$paceline" report runs/async runs/limited runs/sync --format csv --out servers.csv
