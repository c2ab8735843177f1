"""How often `paceline compare` calls equal commands different, and how often it finds a planted difference.

python compare_itself.py PROGRAM [COMPARISONS] [PLANTED] [SECONDS]      prints one JSON document

A comparison stops at the first look at which one command is said to be faster, which is when false alarms are most likely.
"""

import json
import subprocess
import sys

program = sys.argv[1]
equal = int(sys.argv[2]) if len(sys.argv) > 2 else 200
planted = int(sys.argv[3]) if len(sys.argv) > 3 else 40
seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 2.0


def command(loops):
    return ["awk", f"BEGIN {{ for (i = 0; i < {loops}; i++) s += i }}"]


def compare(a, b, budget, seed):
    words = [program, "compare", "--json", "--quiet", "--until", "decided", "--budget", budget, "--seed", str(seed)]
    said = subprocess.run([*words, "--", *command(a), "--", *command(b)], check=True, capture_output=True, text=True)
    return json.loads(said.stdout)


false = pairs = 0
for seed in range(equal):
    found = compare(300_000, 300_000, f"{seconds}s", seed)
    false += found["answer"] in ("faster", "slower")
    pairs += len(found["pairs"])
hits = wrong = 0
needed = []
for seed in range(planted):
    # 3 % more work, of which the start of the process is a small part.
    found = compare(5_000_000, 5_150_000, f"{10 * seconds}s", seed)
    hits += found["answer"] == "slower"
    wrong += found["answer"] == "faster"
    if found["answer"] == "slower":
        needed.append(len(found["pairs"]))
print(
    json.dumps(
        {
            "equal": equal,
            "false_alarms": false,
            "pairs_of_equal": pairs,
            "planted": planted,
            "found": hits,
            "wrong_way": wrong,
            "median_pairs": sorted(needed)[len(needed) // 2] if needed else None,
        }
    )
)
