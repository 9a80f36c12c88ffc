// llmc/parallel/comm.cpp: every collective passes through here, is recorded, and is then done by
// the communicator's own means.
#include "llmc/parallel/comm.h"

CommRecording Comm::record(const char* kind, const char* what, Dtype t, size_t n, size_t sent) {
    const int64_t bytes = size() > 1 ? int64_t(sent * dtype_bytes(t)) : 0;
    bytes_sent_ += bytes;
    return {kind, what, t, n, bytes, stream()};
}

std::shared_ptr<void> Comm::memory_register(void* data, size_t bytes, const char* what) {
    const CommRecording recording = record("registration", what, Dtype::I32, bytes / 4, 0);
    return do_register(data, bytes);
}

void Comm::all_reduce(void* data, size_t n, Dtype t, ReduceOp op, const char* what) {
    const size_t N = size_t(size());
    const CommRecording recording = record("all-reduce", what, t, n, 2 * n * (N - 1) / N);
    do_all_reduce(data, n, t, op);
}
void Comm::reduce_scatter(void* mine, const void* all, Slices s, Dtype t, ReduceOp op,
                          const char* what) {
    const CommRecording recording = record("reduce-scatter", what, t, s.n, s.n - s.count(rank()));
    do_reduce_scatter(mine, all, s, t, op);
}
void Comm::all_gather(void* all, const void* mine, Slices s, Dtype t, const char* what) {
    const CommRecording recording =
        record("all-gather", what, t, s.n, s.count(rank()) * size_t(size() - 1));
    do_all_gather(all, mine, s, t);
}
void Comm::all_to_all(void* all, Slices s, Dtype t, const Take& take, const char* what,
                      void* room) {
    const CommRecording recording = record("all-to-all", what, t, s.n, s.n - s.count(rank()));
    do_all_to_all(all, s, t, take, room);
}
void Comm::broadcast(void* data, size_t n, Dtype t, int root, const char* what) {
    const CommRecording recording = record("broadcast", what, t, n, rank() == root ? n : 0);
    do_broadcast(data, n, t, root);
}
void Comm::send(const void* data, size_t n, Dtype t, int to, const char* what) {
    const CommRecording recording = record("send", what, t, n, n);
    do_send(data, n, t, to);
}
void Comm::recv(void* data, size_t n, Dtype t, int from, const char* what) {
    const CommRecording recording = record("recv", what, t, n, 0);
    do_recv(data, n, t, from);
}
void Comm::barrier(const char* what) {
    const CommRecording recording = record("barrier", what, Dtype::I32, 0, 0);
    do_barrier();
}
