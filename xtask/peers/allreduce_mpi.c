/* One measurement of MPI_Allreduce (float32, sum, in place) between the processes of this machine.

   mpirun ... allreduce_mpi FLOATS OPERATIONS [fresh] prints {"value": operations per second of the slowest rank}.
   With "fresh" every rank writes all its numbers before every sum, inside the clock.

   A waiting MPI process never sleeps, so it cannot stay up between the turns of a contest as the other peers do: it is
   started for every measurement, and warms up before it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void fill(float *numbers, long count) {
    for (long i = 0; i < count; i++) numbers[i] = 1;
}

static void all_reduce(float *numbers, long count) {
    MPI_Allreduce(MPI_IN_PLACE, numbers, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 3) MPI_Abort(MPI_COMM_WORLD, 2);
    long count = atol(argv[1]), operations = atol(argv[2]);
    int fresh = argc > 3;
    float *numbers = malloc(count * sizeof *numbers);
    fill(numbers, count);
    all_reduce(numbers, count);
    if (numbers[0] != size || numbers[count - 1] != size) MPI_Abort(MPI_COMM_WORLD, 1);
    /* As much work before the clock as on our side: 20 to 100 ms. */
    long warm_up = (50L << 20) / (count + 2048);
    for (long i = 0; i < (warm_up > 0 ? warm_up : 1); i++) all_reduce(numbers, count);

    double best_of[5], least = 0;
    for (int repeat = 0; repeat < 5; repeat++) {
        fill(numbers, count);
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        for (long i = 0; i < operations; i++) {
            if (fresh) fill(numbers, count);
            all_reduce(numbers, count);
        }
        double own = (MPI_Wtime() - began) / operations;
        MPI_Allreduce(&own, &best_of[repeat], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (repeat == 0 || best_of[repeat] < least) least = best_of[repeat];
    }
    /* The best of five repetitions, as on the other sides. */
    if (rank == 0) printf("{\"value\": %.9g}\n", 1 / least);
    MPI_Finalize();
    return 0;
}
