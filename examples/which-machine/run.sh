#!/usr/bin/env bash
# Which machine, and how many: what past jobs say, how good such advice is on them, and how one job scales.
set -euo pipefail
paceline=${PACELINE:-paceline}
"$paceline" advise evaluate --catalog machines.csv --history runs.csv --methods paceline,random --seeds "${SEEDS:-2}" --steps 6 --out evaluation.html
"$paceline" advise tell --state search.json --catalog machines.toml --history runs.json --machine m4.large --count 4 --seconds 900
"$paceline" advise ask --state search.json --catalog machines.toml --history runs.json --out search.html
"$paceline" advise scale scaling.csv --up-to 32 --usd-per-hour 0.2
"$paceline" advise parallel --layers layers.json --workers 4 --batch-size 64 --network 10Gbit --latency 50us --local-network 10GB --local-latency 10us --memory 16GiB
