// dev/parallel/03_zero1.cpp: ZeRO-1. A rank holds the moments of its slice alone. An all-reduce is
// a reduce-scatter and an all-gather; the update now stands between the two, so no byte more
// travels.
#include <mpi.h>

#include "toy.h"

int main(int argc, char** argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    const int n = (kParams + ranks - 1) / ranks;  // of a slice; the last one is padded
    std::vector<float> p(n * ranks), m(n), v(n);
    std::vector<int64_t> d(n * ranks), mine(n);
    for (int i = 0; i < kParams; i++) p[i] = noise(1000 + i);
    for (int step = 1; step <= kSteps; step++) {
        int64_t loss = 0;
        for (int s = rank; s < kBatch; s += ranks)
            loss += sample(&p[0], &p[kLayer1], step * kBatch + s, &d[0], &d[kLayer1]);
        MPI_Reduce_scatter_block(&d[0], &mine[0], n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        adam(&p[n * rank], &m[0], &v[0], &mine[0], n, step);
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, &p[0], n, MPI_FLOAT, MPI_COMM_WORLD);
        d.assign(d.size(), 0);
        if (rank == 0) report(step, loss);
    }
    MPI_Finalize();
}
