// llmc/parallel/comm_shared.h: collectives between ranks of one host, through memory they share: an
// MPI-3 shared window under mpirun, an anonymous mapping between forked processes in tests.
//
// Where the memory is registered, every rank sees it as it lies, and one visit does it all:
//     meet; sum of my slice over all ranks' memory, written into all ranks' memory; meet
// Nothing is copied; 2 n elements pass through each rank, whatever their number. Registered memory
// is an anonymous file (memfd) for each rank, which the others open as /proc/PID/fd/N: it has no
// size limit of its own, as /dev/shm has in containers, and nothing is left of it when ranks die.
//
// Other long messages go through in pieces that fit a core's cache. An all-reduce of N ranks:
//     in period p   copy piece p of the others' slices into my inbox
//                   add up my slice of piece p-1 from all inboxes, publish it
//                   copy piece p-2 of the others' slices from where they published it
//     then all meet, and the next period begins.
// Every element is copied in once, added once and copied out once, (N-1)/N, 1 and (N-1)/N of the
// data; one meeting a period. What is written in period p is read in period p+1, and its place is
// written again in p+2: two places, used by turns, are enough, also from one collective to the
// next.
//
// Ranks meet by counting who has come: the last one lets all go. Whoever must wait looks at the
// count a while, or lets others run where ranks share cores, and then sleeps (futex).
#pragma once
#include <atomic>
#include <vector>

#include "llmc/core/host.h"
#include "llmc/parallel/comm.h"

// A count that others wait for.
struct alignas(64) SharedCount {
    std::atomic<uint32_t> value{0}, sleepers{0};
};

// What the ranks of a host know about each other, besides what they send
// (llmc/parallel/watchdog.h). It is zero at first, and every word is read and written alone.
struct alignas(64) RankStatus {
    std::atomic<int32_t> pid, phase, done;
    std::atomic<int32_t> error;  // a digest of this rank's error message; 0: none
    std::atomic<int64_t> step;
    std::atomic<int64_t> seq;  // of its last collective
    std::atomic<double> beat;  // comm_clock of its watchdog: a stopped process has an old one
    std::atomic<uint64_t> cores[std::tuple_size_v<CoreMask>];  // that it may run on
};
struct SharedStatus {
    // The first failure on this host: exit code, and the rank in the world; 0: none.
    std::atomic<int32_t> failure;
    std::atomic<double> elsewhere;  // the last progress on another host, on this one's comm_clock
    RankStatus ranks[1];            // one for every rank of the host

    static size_t bytes(int ranks) {
        return sizeof(SharedStatus) + size_t(ranks) * sizeof(RankStatus);
    }
};
inline int32_t failure_word(int code, int rank) {
    return code | rank << 8;
}
inline PeerFailed failure_of(int32_t word) {
    return {word & 255, word >> 8};
}
// False: a rank of this host has failed before.
inline bool failure_tell(SharedStatus& status, int code, int rank) {
    int32_t nobody = 0;
    return status.failure.compare_exchange_strong(nobody, failure_word(code, rank));
}

class CommShared final : public Comm {
  public:
    static constexpr size_t kPiece = 256 << 10;  // bytes of one piece, over all slices
    static constexpr size_t kMail = 16 << 10;    // bytes of one piece of a send

    // The memory: zero, the same on all ranks, at any address.
    static size_t bytes(int ranks);
    // `failure`: once it is not zero, whoever waits throws PeerFailed; may be null. Ranks that have
    // a core each may look on while they wait; ranks that share cores must not.
    CommShared(void* memory, int rank, int ranks, const std::atomic<int32_t>* failure,
               bool core_each);

    int rank() const override { return rank_; }
    int size() const override { return size_; }

  protected:
    void do_all_reduce(void* data, size_t n, Dtype t, ReduceOp op) override;
    void do_reduce_scatter(void* mine, const void* all, Slices s, Dtype t, ReduceOp op) override;
    void do_all_gather(void* all, const void* mine, Slices s, Dtype t) override;
    void do_all_to_all(void* all, Slices s, Dtype t, const Take& take, void* room) override;
    void do_broadcast(void* data, size_t n, Dtype t, int root) override;
    void do_send(const void* data, size_t n, Dtype t, int to) override;
    void do_recv(void* data, size_t n, Dtype t, int from) override;
    void do_barrier() override { meet(); }
    std::shared_ptr<void> do_register(void* data, size_t bytes) override;

  private:
    // Memory of all ranks at the same offset: where it lies here, by rank.
    using Places = std::vector<char*>;
    struct Registered {
        size_t bytes;
        Places parts;
    };
    void deregister(void* data);
    // Of `data`, which lies in registered memory; else empty.
    Places everywhere(const void* data) const;
    // Shifted to a rank's slice, as combine wants what is read and what is written.
    template <class Pointer>
    static std::vector<Pointer> shifted(const Places& places, size_t bytes) {
        std::vector<Pointer> out;
        for (char* p : places) out.push_back(p + bytes);
        return out;
    }

    // All ranks: nobody leaves before everybody has come; ends the period.
    void meet();
    void wait_for(SharedCount& count, uint32_t target) const;
    template <class There>
    bool yield_until(There there) const;
    static void post(SharedCount& count, uint32_t value);
    static void wake(SharedCount& count);

    // Places of the period under way (ago = 0) and of the one before (ago = 1).
    char* inbox(int rank, int ago) const { return place(rank, 0, ago); }
    char* outbox(int rank, int ago) const { return place(rank, 1, ago); }
    char* place(int rank, int which, int ago) const {
        return data_ + (size_t(rank) * 4 + size_t(which) * 2 + (met_ + uint32_t(ago)) % 2) * kPiece;
    }
    void small_all_reduce(void* data, size_t n, Dtype t, ReduceOp op);
    // Pieces of a reduction: the others' slices into my inbox; my slice from all inboxes.
    struct Piece {
        Slices s;
        size_t width, each;  // bytes an element; elements of a slice in one piece
        size_t first(size_t piece) const { return piece * each; }
        size_t count(int rank, size_t piece) const {
            const size_t n = s.count(rank), at = first(piece);
            return at < n ? std::min(each, n - at) : 0;
        }
        size_t pieces() const { return each ? (s.count(0) + each - 1) / each : 0; }
    };
    Piece cut(Slices s, Dtype t, int places) const;
    void copy_in(const Piece& p, size_t piece, const char* all) const;
    std::vector<const void*> sources(const Piece& p, size_t piece, const char* all) const;
    void publish(const Piece& p, size_t piece, const char* mine) const;
    void copy_out(const Piece& p, size_t piece, char* all) const;
    SharedCount& mail(int from, int to, int which) const {
        return counts_[1 + (size_t(from) * size_t(size_) + size_t(to)) * 2 + size_t(which)];
    }
    char* mailbox(int from, int to) const {
        return mail_ + (size_t(from) * size_t(size_) + size_t(to)) * kMail;
    }

    int rank_, size_, spins_;
    mutable int sleeps_ = 0;  // waits that will not yield
    const std::atomic<int32_t>* failure_;
    SharedCount* counts_;  // who has come, over all meetings; letters sent and taken by each pair
    char *data_, *mail_;
    uint32_t met_ = 0;  // meetings so far, modulo 2^32
    std::vector<Registered> registered_;
};
