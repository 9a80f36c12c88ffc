// dev/parallel/01_serial.cpp: one process. The next toys differ from this one by a few lines each:
//   diff dev/parallel/01_serial.cpp dev/parallel/02_ddp.cpp
#include "toy.h"

int main() {
    std::vector<float> p(kParams), m(kParams), v(kParams);
    std::vector<int64_t> d(kParams);
    for (int i = 0; i < kParams; i++) p[i] = noise(1000 + i);
    for (int step = 1; step <= kSteps; step++) {
        int64_t loss = 0;
        for (int s = 0; s < kBatch; s++)
            loss += sample(&p[0], &p[kLayer1], step * kBatch + s, &d[0], &d[kLayer1]);
        adam(&p[0], &m[0], &v[0], &d[0], kParams, step);
        report(step, loss);
    }
}
