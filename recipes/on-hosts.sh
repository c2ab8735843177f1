#!/bin/sh
# One cell of until-loss with every task on a host of its own, as it was published: the server and worker 0 share a host, workers 1 and 2
# have one each, and a task that scores holds up none of them. Hosts are network namespaces of this machine, so this needs root and `ip`.
#
#   sudo recipes/on-hosts.sh ps-async --batch-size 100 --data mnist
#
# Prints how many iterations each worker did and when it ended. Nothing but the run folder under runs/ is left behind.
set -eu

strategy=$1
shift
program=${PACELINE:-paceline}
lab=plh$$
folder=$(mktemp -d)
tasks=""

clean_up() {
    for task in $tasks; do kill "$task" 2>/dev/null || true; done
    for host in hub 1 2 3; do ip netns del "$lab-$host" 2>/dev/null || true; done
    rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

ip netns add "$lab-hub"
ip -n "$lab-hub" link add hub type bridge
ip -n "$lab-hub" link set hub up
for host in 1 2 3; do
    ip netns add "$lab-$host"
    ip -n "$lab-$host" link add cable type veth peer name "plug$host" netns "$lab-hub"
    ip -n "$lab-$host" addr add "10.78.1.$host/24" dev cable
    ip -n "$lab-$host" link set lo up
    ip -n "$lab-$host" link set cable up
    ip -n "$lab-hub" link set "plug$host" master hub
    ip -n "$lab-hub" link set "plug$host" up
done

cat > "$folder/cluster.toml" <<END
workers = ["10.78.1.1:7000", "10.78.1.2:7000", "10.78.1.3:7000"]
ps = ["10.78.1.1:7001"]
evaluator = "10.78.1.1:7002"
END
"$program" key new --quiet "$folder/key" > /dev/null

run() {
    host=$1
    task=$2
    shift 2
    PACELINE_KEY_FILE="$folder/key" exec ip netns exec "$lab-$host" "$program" --quiet --json node \
        --cluster "$folder/cluster.toml" --task "$task" --model softmax --strategy "$strategy" \
        --until-loss 0.35 --lr 0.01 --eval-every 100 --epochs 1000 --no-tensorboard "$@"
}

for place in 1:ps/0 1:evaluator/0 2:worker/1 3:worker/2; do
    (run "${place%%:*}" "${place#*:}" "$@" > "$folder/$(echo "$place" | tr :/ --).log" 2>&1) &
    tasks="$tasks $!"
done
(run 1 worker/0 "$@") > "$folder/chief.json"
python3 - "$folder/chief.json" <<'END'
import json, sys
for worker in json.load(open(sys.argv[1]))["workers"]:
    print(f"{worker['task']}: {worker['iterations']} iterations in {worker['finished']:.1f} s")
END
