// dev/parallel/04_zero3.cpp: ZeRO-3. A rank holds its slice of everything. Parameters are gathered
// before they are used and given away after; gradients go to their owners.
// (ZeRO-2 is the half of it: gradients as here, parameters as in 03_zero1.cpp.)
#include <mpi.h>

#include "toy.h"

int main(int argc, char** argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    const int n = (kParams + ranks - 1) / ranks;  // of a slice; the last one is padded
    std::vector<float> mine(n), m(n), v(n);
    std::vector<int64_t> dmine(n);
    for (int i = 0; i < n && n * rank + i < kParams; i++) mine[i] = noise(1000 + n * rank + i);
    for (int step = 1; step <= kSteps; step++) {
        int64_t loss = 0;
        for (int s = rank; s < (kBatch + ranks - 1) / ranks * ranks; s += ranks) {
            std::vector<float> p(n * ranks);  // lives as long as it is needed
            std::vector<int64_t> d(n * ranks), sum(n);
            MPI_Allgather(&mine[0], n, MPI_FLOAT, &p[0], n, MPI_FLOAT, MPI_COMM_WORLD);
            if (s < kBatch)  // a rank without a sample takes part all the same
                loss += sample(&p[0], &p[kLayer1], step * kBatch + s, &d[0], &d[kLayer1]);
            MPI_Reduce_scatter_block(&d[0], &sum[0], n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
            for (int i = 0; i < n; i++) dmine[i] += sum[i];
        }
        MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        adam(&mine[0], &m[0], &v[0], &dmine[0], n, step);
        if (rank == 0) report(step, loss);
    }
    MPI_Finalize();
}
