#!/usr/bin/env bash
# Trains on hosts that are reached by ssh: copies binary, key and cluster file, starts one task per address, waits for all.
#
#   deploy/ssh/run.sh deploy/ssh/cluster.toml cluster.key --strategy multi-worker --model lenet --data /nfs/digits --epochs 10 --out /nfs/runs
#   deploy/ssh/run.sh deploy/ssh/cluster-ps.toml cluster.key --strategy ps-async --model lenet --data /nfs/digits --epochs 10 --out /nfs/runs
#
# Hosts must not ask for a password (ssh-agent), and must reach each other at the addresses of the cluster file.
set -euo pipefail
cluster=${1:?cluster file} key=${2:?key file}
shift 2
binary=${PACELINE:-$(command -v paceline)}
folder=${PACELINE_FOLDER:-.paceline}   # on the hosts, below the home folder

# Lines such as: worker/0 node-1:7000
tasks=$(awk -F'[][]' '/^(workers|ps) *=/ {
  role = ($0 ~ /^workers/) ? "worker" : "ps"
  count = split($2, address, ",")
  for (i = 1; i <= count; i++) { gsub(/[" ]/, "", address[i]); if (address[i] != "") print role "/" (i - 1), address[i] }
}' "$cluster")
hosts=$(awk '{ sub(/:[0-9]+$/, "", $2); print $2 }' <<<"$tasks" | sort -u)

if [[ -n ${DRY_RUN:-} ]]; then   # shows what would run where
    while read -r task address; do
        printf '%s: paceline node --cluster cluster.toml --task %s --key cluster.key %s\n' "${address%:*}" "$task" "$*"
    done <<<"$tasks"
    exit 0
fi

for host in $hosts; do
    ssh "$host" "umask 077 && mkdir -p $folder"
    scp -q -p "$binary" "$host:$folder/paceline"
    scp -q -p "$cluster" "$host:$folder/cluster.toml"
    scp -q -p "$key" "$host:$folder/cluster.key"
done

pids=()
while read -r task address; do
    # -tt: when this script ends, so does the task.
    ssh -tt "${address%:*}" "cd $folder && chmod 600 cluster.key && exec ./paceline node --cluster cluster.toml --task $task \
        --key cluster.key $(printf '%q ' "$@")" </dev/null &
    pids+=($!)
done <<<"$tasks"

code=0
for pid in "${pids[@]}"; do
    wait "$pid" || code=$?
done
exit "$code"
