#include "llmc/parallel/comm_mpi.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "llmc/core/check.h"
#include "llmc/parallel/combine.h"

int launched_processes(const std::function<const char*(const char*)>& get) {
    const auto number = [&](const char* name) {
        const char* text = get(name);
        return text ? std::atoi(text) : 0;
    };
    // Open MPI's mpirun; MPICH's and its kin; any that speaks PMIx without saying how many; srun.
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
        if (const int n = number(name)) return n;
    if (const int n = number("SLURM_STEP_NUM_TASKS"); n > 1) return n;
    return get("PMIX_RANK") ? 1 : 0;
}

#ifdef LLMC_MPI
#include <mpi.h>

// MPI's own error handler ends the job; what returns a code all the same is checked.
#define MPI_CHECK(call)                                                                      \
    do {                                                                                     \
        const int code = (call);                                                             \
        CHECK(code == MPI_SUCCESS, Exit::Resource, str("MPI: ", #call), str("code ", code)); \
    } while (0)

namespace {

// to = from + to, in bf16.
void add_bf16(void* from, void* to, int* n, MPI_Datatype*) {
    combine({to}, {to, from}, size_t(*n), Dtype::BF16, ReduceOp::Sum);
}

class CommMpi final : public Comm {
  public:
    CommMpi() {
        MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
        MPI_CHECK(MPI_Comm_rank(comm_, &rank_));
        MPI_CHECK(MPI_Comm_size(comm_, &size_));
        MPI_CHECK(MPI_Type_contiguous(2, MPI_BYTE, &bits16_));
        MPI_CHECK(MPI_Type_commit(&bits16_));
        MPI_CHECK(MPI_Op_create(add_bf16, 1, &bf16_sum_));
    }
    ~CommMpi() override {
        MPI_Op_free(&bf16_sum_);
        MPI_Type_free(&bits16_);
        MPI_Comm_free(&comm_);
    }
    int rank() const override { return rank_; }
    int size() const override { return size_; }

  protected:
    void do_all_reduce(void* data, size_t n, Dtype t, ReduceOp op) override {
        in_pieces(data, n, t, [&](void* piece, int count) {
            MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, piece, count, type(t), operation(t, op), comm_));
        });
    }
    void do_reduce_scatter(void* mine, const void* all, Slices s, Dtype t, ReduceOp op) override {
        // Into a buffer of its own: MPI forbids that the result lies inside the input.
        std::vector<char> sum(s.count(rank_) * dtype_bytes(t));
        const Counts c = counts(s);
        MPI_CHECK(
            MPI_Reduce_scatter(all, sum.data(), c.counts.data(), type(t), operation(t, op), comm_));
        if (!sum.empty()) std::memcpy(mine, sum.data(), sum.size());
    }
    void do_all_gather(void* all, const void* mine, Slices s, Dtype t) override {
        char* place = static_cast<char*>(all) + s.begin(rank_) * dtype_bytes(t);
        if (place != mine) std::memmove(place, mine, s.count(rank_) * dtype_bytes(t));
        const Counts c = counts(s);
        MPI_CHECK(MPI_Allgatherv(MPI_IN_PLACE, 0, type(t), all, c.counts.data(), c.begins.data(),
                                 type(t), comm_));
    }
    // A piece of all slices at a time, as much as the buffer for what is received holds.
    void do_all_to_all(void* all, Slices s, Dtype t, const Take& take, void*) override {
        const size_t width = dtype_bytes(t), ranks = size_t(size_);
        const size_t each = std::min(s.each, std::max<size_t>(kReceived / (width * ranks), 1));
        const Counts whole = counts(s);
        std::vector<char> got(each * width * ranks);
        for (size_t first = 0; first < s.each; first += each) {
            const auto count = [&](int r) {
                return s.count(r) > first ? int(std::min(each, s.count(r) - first)) : 0;
            };
            const int mine = count(rank_);
            Counts out, in;
            for (int r = 0; r < size_; r++) {
                out.counts.push_back(count(r));
                out.begins.push_back(count(r) ? whole.begins[size_t(r)] + int(first) : 0);
                in.counts.push_back(mine);
                in.begins.push_back(r * mine);
            }
            MPI_CHECK(MPI_Alltoallv(all, out.counts.data(), out.begins.data(), type(t), got.data(),
                                    in.counts.data(), in.begins.data(), type(t), comm_));
            char* own = static_cast<char*>(all) + (s.begin(rank_) + first) * width;
            for (int r = 0; r < size_ && mine; r++)
                take(r == rank_ ? own : got.data() + size_t(r * mine) * width, first, size_t(mine));
        }
    }
    void do_broadcast(void* data, size_t n, Dtype t, int root) override {
        in_pieces(data, n, t, [&](void* piece, int count) {
            MPI_CHECK(MPI_Bcast(piece, count, type(t), root, comm_));
        });
    }
    void do_send(const void* data, size_t n, Dtype t, int to) override {
        in_pieces(const_cast<void*>(data), n, t, [&](void* piece, int count) {
            MPI_CHECK(MPI_Send(piece, count, type(t), to, 0, comm_));
        });
    }
    void do_recv(void* data, size_t n, Dtype t, int from) override {
        in_pieces(data, n, t, [&](void* piece, int count) {
            MPI_CHECK(MPI_Recv(piece, count, type(t), from, 0, comm_, MPI_STATUS_IGNORE));
        });
    }
    void do_barrier() override { MPI_CHECK(MPI_Barrier(comm_)); }

  private:
    static constexpr size_t kReceived = 1 << 20;  // bytes of an all-to-all that lie here at a time

    // MPI 3 counts in int.
    template <class Each>
    static void in_pieces(void* data, size_t n, Dtype t, Each each) {
        constexpr size_t most = size_t(1) << 30;
        for (size_t at = 0; at < n; at += most)
            each(static_cast<char*>(data) + at * dtype_bytes(t), int(std::min(most, n - at)));
    }
    struct Counts {
        std::vector<int> counts, begins;
    };
    Counts counts(Slices s) const {
        CHECK(s.n <= size_t(INT32_MAX), Exit::Usage, "too much for one collective",
              str(s.n, " elements"), str("at most ", INT32_MAX), "a smaller --bucket-mb");
        Counts c;
        for (int r = 0; r < size_; r++) {
            c.counts.push_back(int(s.count(r)));
            c.begins.push_back(int(s.begin(r)));
        }
        return c;
    }
    MPI_Datatype type(Dtype t) const {
        switch (t) {
            case Dtype::F32:
                return MPI_FLOAT;
            case Dtype::F64:
                return MPI_DOUBLE;
            case Dtype::I32:
                return MPI_INT32_T;
            case Dtype::I64:
                return MPI_INT64_T;
            case Dtype::BF16:
            case Dtype::F16:
                return bits16_;
            default:
                fail(Exit::Usage, "no collective of this type", dtype_name(t));
        }
    }
    MPI_Op operation(Dtype t, ReduceOp op) const {
        CHECK(t != Dtype::F16 && (t != Dtype::BF16 || op == ReduceOp::Sum), Exit::Usage,
              "no such reduction", dtype_name(t), "sums of bf16, none of fp16");
        return t == Dtype::BF16      ? bf16_sum_
               : op == ReduceOp::Sum ? MPI_SUM
               : op == ReduceOp::Max ? MPI_MAX
                                     : MPI_MIN;
    }

    MPI_Comm comm_;
    MPI_Datatype bits16_;
    MPI_Op bf16_sum_;
    int rank_ = 0, size_ = 1;
};

std::string library_name() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_CHECK(MPI_Get_library_version(text, &length));
    const std::string all(text, size_t(length));
    return all.substr(0, all.find_first_of(",\n"));
}

}  // namespace

struct MpiSession::Handles {
    MPI_Comm host = MPI_COMM_NULL;
    std::vector<MPI_Win> windows;
    // The beat: of the first ranks of the hosts; the least of {age, has ended} of all.
    MPI_Comm leaders = MPI_COMM_NULL;
    MPI_Request beat = MPI_REQUEST_NULL;
    double mine[2] = {0, 0}, least[2] = {0, 0};

    void beat_start(double age, bool ended) {
        mine[0] = age, mine[1] = ended;
        MPI_CHECK(MPI_Iallreduce(mine, least, 2, MPI_DOUBLE, MPI_MIN, leaders, &beat));
    }
    bool beat_there() {
        int there = 0;
        MPI_CHECK(MPI_Test(&beat, &there, MPI_STATUS_IGNORE));
        return there;
    }
};

std::unique_ptr<MpiSession> MpiSession::start() {
    const int launched = launched_processes([](const char* name) { return std::getenv(name); });
    if (!launched) return nullptr;
    std::unique_ptr<MpiSession> s(new MpiSession);
    s->handles_ = std::make_unique<Handles>();
    int level = 0;
    MPI_CHECK(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
    MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &s->rank));
    MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &s->size));
    s->library = library_name();
    s->many_threads = level == MPI_THREAD_MULTIPLE;
    CHECK(s->size >= launched, Exit::Usage, "the launcher and MPI do not know each other",
          str(launched, " processes, each alone in its MPI"), "one world",
          "srun --mpi=pmix, or the mpirun of the MPI that this program was built with");
    CHECK(s->size == 1 || level >= MPI_THREAD_SERIALIZED, Exit::Usage,
          "this MPI cannot be called from a second thread", s->library, "MPI_THREAD_SERIALIZED");
    MPI_CHECK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                                  &s->handles_->host));
    MPI_CHECK(MPI_Comm_rank(s->handles_->host, &s->local_rank));
    MPI_CHECK(MPI_Comm_size(s->handles_->host, &s->local_size));
    const int leads = s->local_rank == 0;
    MPI_CHECK(MPI_Allreduce(&leads, &s->hosts, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    int leader = s->rank;
    MPI_CHECK(MPI_Bcast(&leader, 1, MPI_INT, 0, s->handles_->host));
    s->first_host = leader == 0;
    if (s->hosts > 1 && s->many_threads)
        MPI_CHECK(MPI_Comm_split(MPI_COMM_WORLD, leads ? 0 : MPI_UNDEFINED, s->rank,
                                 &s->handles_->leaders));
    return s;
}

double MpiSession::beat(double age) {
    Handles& h = *handles_;
    if (h.leaders == MPI_COMM_NULL) return -1;
    const bool there = h.beat != MPI_REQUEST_NULL && h.beat_there();
    const double least = there ? h.least[0] : -1;
    if (h.beat == MPI_REQUEST_NULL) h.beat_start(age, false);
    return least;
}

// An exchange that one host has begun must end on all, so they go on until all say that they have
// ended, however long another host still works: its watchdog answers. False if one does not.
bool MpiSession::beats_end() {
    Handles& h = *handles_;
    if (h.leaders == MPI_COMM_NULL) return true;
    for (;;) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        if (h.beat == MPI_REQUEST_NULL) h.beat_start(0, true);
        while (!h.beat_there()) {
            if (std::chrono::steady_clock::now() > end) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        if (h.least[1] == 1) return MPI_Comm_free(&h.leaders) == MPI_SUCCESS;
    }
}

MpiSession::~MpiSession() {
    if (!beats_end()) return;
    for (MPI_Win& window : handles_->windows) MPI_Win_free(&window);
    if (handles_->host != MPI_COMM_NULL) MPI_Comm_free(&handles_->host);  // null: start() failed
    MPI_Finalize();
}

void* MpiSession::shared_memory(size_t bytes) {
    MPI_Win window;
    void* memory = nullptr;
    // The first rank's part is all of it.
    MPI_CHECK(MPI_Win_allocate_shared(local_rank == 0 ? MPI_Aint(bytes) : 0, 1, MPI_INFO_NULL,
                                      handles_->host, &memory, &window));
    handles_->windows.push_back(window);
    MPI_Aint size = 0;
    int unit = 0;
    MPI_CHECK(MPI_Win_shared_query(window, 0, &size, &unit, &memory));
    if (local_rank == 0) std::memset(memory, 0, bytes);
    host_barrier();
    return memory;
}

void MpiSession::host_barrier() {
    MPI_CHECK(MPI_Barrier(handles_->host));
}

std::unique_ptr<Comm> MpiSession::comm() {
    return std::make_unique<CommMpi>();
}

void MpiSession::abort(int code) {
    MPI_Abort(MPI_COMM_WORLD, code);
    std::abort();
}

#else  // without MPI

struct MpiSession::Handles {};

std::unique_ptr<MpiSession> MpiSession::start() {
    const int launched = launched_processes([](const char* name) { return std::getenv(name); });
    CHECK(launched <= 1, Exit::Usage, "started as one of many, but built without MPI",
          str(launched, " processes"), "one",
          "install libopenmpi-dev and openmpi-bin, then `make clean` and `make`");
    return nullptr;
}
MpiSession::~MpiSession() = default;
void* MpiSession::shared_memory(size_t) {
    std::abort();
}
std::unique_ptr<Comm> MpiSession::comm() {
    std::abort();
}
void MpiSession::host_barrier() {}
double MpiSession::beat(double) {
    return -1;
}
void MpiSession::abort(int code) {
    std::_Exit(code);
}

#endif
