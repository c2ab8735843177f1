#!/bin/sh
# Runs a command of paceline with every worker on a host of its own, as published experiments did. Hosts are network namespaces of this
# machine, connected by a bridge: what their tasks exchange goes through the kernel's network, not through shared memory, and what each
# of them sends and receives is counted apart. Needs root, `ip` and, for cores of their own, `taskset`.
#
#   sudo recipes/on-hosts.sh train --model softmax --data mnist --strategy ps-async --workers 3 --ps 1 --evaluator --epochs 2
#   sudo recipes/on-hosts.sh prepare flowers shards --engine spark --spark-master 'local-cluster[4,2,1024]'
#   sudo recipes/on-hosts.sh matmul --size 20000 --workers 5 --placement rows
#
# - train: the server and a task that scores share the host of worker 0.
# - prepare: `local-cluster[N,C,MiB]` becomes a Spark cluster of N hosts with C cores each; its master is on the first host.
# - matmul: every worker is a task of a cluster, with the blocks that are placed on it and as many cores of its own as there are for each.
#
# `paceline sweep RECIPE --hosts` runs cells this way. PACELINE is the program, PACELINE_CELL a folder for what hosts record.
set -eu

program=${PACELINE:-paceline}
lab=plh$$
folder=$(mktemp -d)
hosts=0
started=""

clean_up() {
    for process in $started; do kill "$process" 2>/dev/null || true; done
    for host in $(seq "$hosts"); do
        # What a host still runs ends with it.
        for process in $(ip netns pids "$lab-$host" 2>/dev/null); do kill -9 "$process" 2>/dev/null || true; done
        ip netns del "$lab-$host" 2>/dev/null || true
    done
    ip netns del "$lab-hub" 2>/dev/null || true
    rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# wire N: N hosts, 10.78.1.1 and so on, around a hub.
wire() {
    if ! ip netns add "$lab-hub" 2> "$folder/why"; then
        echo "error: cannot make hosts on this machine (needs root and \`ip\`): $(cat "$folder/why")" >&2
        exit 1
    fi
    ip -n "$lab-hub" link add hub type bridge
    ip -n "$lab-hub" link set hub up
    while [ "$hosts" -lt "$1" ]; do
        hosts=$((hosts + 1))
        ip netns add "$lab-$hosts"
        ip -n "$lab-$hosts" link add cable type veth peer name "plug$hosts" netns "$lab-hub"
        ip -n "$lab-$hosts" addr add "10.78.1.$hosts/24" dev cable
        ip -n "$lab-$hosts" link set lo up
        ip -n "$lab-$hosts" link set cable up
        ip -n "$lab-hub" link set "plug$hosts" master hub
        ip -n "$lab-hub" link set "plug$hosts" up
    done
}

# on HOST COMMAND…: a command on a host, which has a name of its own.
on() {
    host=$1
    shift
    # Spark would look its host's name up, which no name server knows.
    export SPARK_LOCAL_IP="10.78.1.$host" SPARK_LOCAL_HOSTNAME="10.78.1.$host"
    exec ip netns exec "$lab-$host" unshare --uts sh -c 'hostname "$0" && exec "$@"' "host-$host" "$@"
}

# The value of a flag in what follows, or nothing.
value_of() {
    flag=$1
    shift
    while [ $# -gt 0 ]; do
        case $1 in
            "$flag") echo "${2:-}"; return ;;
            "$flag"=*) echo "${1#*=}"; return ;;
        esac
        shift
    done
}

train() {
    strategy=$(value_of --strategy "$@")
    case $strategy in
        multi-worker | ps-*) ;;
        # One process has no other task to be apart from.
        *) "$program" train "$@"; return ;;
    esac
    workers=$(value_of --workers "$@")
    servers=$(value_of --ps "$@")
    wire "${workers:=2}"
    {
        printf 'workers = ['
        for host in $(seq "$workers"); do printf '"10.78.1.%s:7000", ' "$host"; done
        echo ']'
        if [ "$strategy" != multi-worker ]; then
            printf 'ps = ['
            for server in $(seq "${servers:-1}"); do printf '"10.78.1.1:%s", ' $((7100 + server)); done
            echo ']'
        fi
        case " $* " in *" --evaluator "*) echo 'evaluator = "10.78.1.1:7001"' ;; esac
    } > "$folder/cluster.toml"
    "$program" key new --quiet "$folder/key" > /dev/null
    tasks=""
    if [ "$strategy" != multi-worker ]; then
        for server in $(seq "${servers:-1}"); do tasks="$tasks 1:ps/$((server - 1))"; done
    fi
    case " $* " in *" --evaluator "*) tasks="$tasks 1:evaluator/0" ;; esac
    for host in $(seq 2 "$workers"); do tasks="$tasks $host:worker/$((host - 1))"; done
    # What the cluster's file says is not said again.
    count=$#
    while [ "$count" -gt 0 ]; do
        count=$((count - 1))
        word=$1
        shift
        case $word in
            --workers | --ps) shift; count=$((count - 1)) ;;
            --workers=* | --ps=* | --evaluator) ;;
            *) set -- "$@" "$word" ;;
        esac
    done
    export PACELINE_KEY_FILE="$folder/key"
    # Hosts of one machine would find the same shared memory and leave the network alone.
    set -- "$@" --no-shared-memory
    for place in $tasks; do
        (on "${place%%:*}" "$program" --quiet --json node --cluster "$folder/cluster.toml" --task "${place#*:}" "$@" \
            > "$folder/$(echo "$place" | tr :/ --).log" 2>&1) &
        started="$started $!"
    done
    (on 1 "$program" node --cluster "$folder/cluster.toml" --task worker/0 "$@")
}

prepare() {
    shape=$(value_of --spark-master "$@")
    case $shape in
        local-cluster\[*) shape=${shape#local-cluster[}; shape=${shape%]} ;;
        *) "$program" prepare "$@"; return ;;
    esac
    count=${shape%%,*}
    memory=${shape##*,}
    cores=${shape#*,}
    cores=${cores%,*}
    if [ -z "${SPARK_HOME:-}" ]; then
        echo "error: hosts of a Spark cluster need SPARK_HOME" >&2
        exit 1
    fi
    spark=$SPARK_HOME/bin/spark-class
    wire "$count"
    nodes=${PACELINE_CELL:-$folder}/nodes
    mkdir -p "$nodes"
    export SPARK_NO_DAEMONIZE=1
    (on 1 "$spark" org.apache.spark.deploy.master.Master --host 10.78.1.1 --port 7077 --webui-port 0 > "$folder/master.log" 2>&1) &
    started="$started $!"
    all=$(nproc)
    for host in $(seq "$count"); do
        # Cores of its own, as far as this machine has as many.
        mine=""
        for core in $(seq "$cores"); do mine="$mine,$((((host - 1) * cores + core - 1) % all))"; done
        (on "$host" taskset -c "${mine#,}" "$spark" org.apache.spark.deploy.worker.Worker --host "10.78.1.$host" --cores "$cores" \
            --memory "${memory}M" --webui-port 0 --work-dir "$folder/work-$host" spark://10.78.1.1:7077 > "$folder/worker-$host.log" 2>&1) &
        worker=$!
        started="$started $worker"
        (on "$host" "$program" --quiet monitor --every 250ms --pid "$worker" --csv "$nodes/resources-node@host-$host.csv" \
            > "$folder/monitor-$host.log" 2>&1) &
        started="$started $!"
    done
    count=$#
    while [ "$count" -gt 0 ]; do
        count=$((count - 1))
        word=$1
        shift
        case $word in
            --spark-master) shift; count=$((count - 1)) ;;
            --spark-master=*) ;;
            *) set -- "$@" "$word" ;;
        esac
    done
    (on 1 "$program" prepare "$@" --spark-master spark://10.78.1.1:7077 --spark-conf spark.driver.host=10.78.1.1)
}

matmul() {
    case " $* " in
        # These say by themselves where they run.
        *" --engine "* | *" --engine="* | *" --cluster "* | *" --cluster="* | *" --node "*) "$program" matmul "$@"; return ;;
    esac
    workers=$(value_of --workers "$@")
    wire "${workers:=2}"
    {
        printf 'workers = ['
        for host in $(seq "$workers"); do printf '"10.78.1.%s:7000", ' "$host"; done
        echo ']'
    } > "$folder/cluster.toml"
    "$program" key new --quiet "$folder/key" > /dev/null
    export PACELINE_KEY_FILE="$folder/key"
    if [ -n "${PACELINE_CELL:-}" ]; then set -- "$@" --record "$PACELINE_CELL/nodes"; fi
    all=$(nproc)
    cores=$((all / workers))
    for host in $(seq 2 "$workers"); do
        (multiply "$host" "$@" > "$folder/worker-$host.log" 2>&1) &
        started="$started $!"
    done
    (multiply 1 "$@")
    # The others are done too; what they recorded is whole when they have ended.
    wait
}

# multiply HOST FLAGS…: one task of a product, on cores of its own as far as this machine has as many.
multiply() {
    number=$1
    shift
    mine=""
    for core in $(seq "$((cores > 1 ? cores : 1))"); do
        mine="$mine,$((((number - 1) * (cores > 1 ? cores : 1) + core - 1) % all))"
    done
    quiet=""
    if [ "$number" -gt 1 ]; then quiet=--quiet; fi
    on "$number" taskset -c "${mine#,}" "$program" $quiet matmul --cluster "$folder/cluster.toml" --no-shared-memory \
        --task "worker/$((number - 1))" "$@"
}

command=$1
shift
case $command in
    train | prepare | matmul) "$command" "$@" ;;
    # Whether this machine can have hosts at all.
    check) wire 1 ;;
    *) "$program" "$command" "$@" ;;
esac
