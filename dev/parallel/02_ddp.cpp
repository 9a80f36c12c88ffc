// dev/parallel/02_ddp.cpp: data parallel. Every rank has all parameters and works on its share of
// the samples; the gradients are added over ranks, and all ranks make the same step.
#include <mpi.h>

#include "toy.h"

int main(int argc, char** argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    std::vector<float> p(kParams), m(kParams), v(kParams);
    std::vector<int64_t> d(kParams);
    for (int i = 0; i < kParams; i++) p[i] = noise(1000 + i);
    for (int step = 1; step <= kSteps; step++) {
        int64_t loss = 0;
        for (int s = rank; s < kBatch; s += ranks)
            loss += sample(&p[0], &p[kLayer1], step * kBatch + s, &d[0], &d[kLayer1]);
        MPI_Allreduce(MPI_IN_PLACE, &d[0], kParams, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        adam(&p[0], &m[0], &v[0], &d[0], kParams, step);
        if (rank == 0) report(step, loss);
    }
    MPI_Finalize();
}
