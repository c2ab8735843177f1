#!/usr/bin/env bash
# Open MPI starts the processes and Paceline's own transport connects them. A build with `--features mpi` (README.md) sums gradients
# with MPI_Allreduce instead, over any network that MPI supports; PACELINE_MPI=off disables that.
#   one machine:      deploy/mpi/run.sh 4 --model lenet --data digits --strategy multi-worker --epochs 2
#   several machines: PACELINE_COORDINATOR=node-1:7000 deploy/mpi/run.sh 8 --hostfile hosts.txt -- --model lenet …
# Open MPI does not tell ranks where rank 0 is, hence PACELINE_COORDINATOR beyond one machine.
set -euo pipefail
tasks=${1:?number of tasks}
shift
mpi=()
for word in "$@"; do
    if [[ $word == -- ]]; then
        while [[ $1 != -- ]]; do mpi+=("$1"); shift; done
        shift
        break
    fi
done
exec mpirun -n "$tasks" -x PACELINE_COORDINATOR -x PACELINE_KEY_FILE "${mpi[@]}" "${PACELINE:-paceline}" node "$@"
