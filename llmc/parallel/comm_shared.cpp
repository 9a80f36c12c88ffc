#include "llmc/parallel/comm_shared.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "llmc/core/check.h"
#include "llmc/core/round.h"
#include "llmc/parallel/combine.h"

constexpr int kSpins = 4000;        // some 20 us
constexpr int kYields = 200;        // some 50 us when nobody else wants the core
constexpr double kLong = 50e-6;     // s; a yield that takes longer went to someone who computes
constexpr int kSleeps = 100;        // waits without yielding after such a one
constexpr long kNap = 100'000'000;  // ns between two looks at whether a rank has failed
constexpr size_t kSmall = 8 << 10;  // bytes that every rank adds up for itself

// ---- memory

static size_t count_bytes(size_t ranks) {
    return round_up((1 + 2 * ranks * ranks) * sizeof(SharedCount), 4096);
}
size_t CommShared::bytes(int ranks) {
    const size_t n = size_t(ranks);
    return count_bytes(n) + 4 * n * kPiece + n * n * kMail;
}

CommShared::CommShared(void* memory, int rank, int ranks, const std::atomic<int32_t>* failure,
                       bool core_each)
    : rank_(rank), size_(ranks), spins_(core_each ? kSpins : 0), failure_(failure) {
    counts_ = static_cast<SharedCount*>(memory);
    data_ = static_cast<char*>(memory) + count_bytes(size_t(ranks));
    mail_ = data_ + 4 * size_t(ranks) * kPiece;
}

// ---- registered memory

namespace {
// What a rank tells the others of its part.
struct Offer {
    int64_t pid, fd;  // fd -1: it has none
    int64_t bytes;
    int64_t key;  // stands at the part's beginning until all have found it
};

// A file of zeros that has all its memory, or -1.
int part_create(size_t bytes) {
    const int fd = ::memfd_create("train_gpt", MFD_CLOEXEC);
    if (fd < 0) return -1;
    if (::posix_fallocate(fd, 0, off_t(bytes)) == 0) return fd;
    ::close(fd);
    return -1;
}

// At `where`, or anywhere; null when it cannot be.
char* part_map(int fd, size_t bytes, void* where = nullptr) {
    void* p =
        ::mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (where ? MAP_FIXED : 0), fd, 0);
    return p == MAP_FAILED ? nullptr : static_cast<char*>(p);
}

// Another rank's part; null when this system does not show it, or /proc shows another process.
char* part_find(const Offer& offer, size_t bytes) {
    if (offer.fd < 0 || offer.bytes != int64_t(bytes)) return nullptr;
    const std::string name = str("/proc/", offer.pid, "/fd/", offer.fd);
    const int fd = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return nullptr;
    struct stat info;
    char* p = nullptr;
    if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == off_t(bytes))
        p = part_map(fd, bytes);
    ::close(fd);
    if (p && std::memcmp(p, &offer.key, sizeof offer.key) != 0) ::munmap(p, bytes), p = nullptr;
    return p;
}
}  // namespace

std::shared_ptr<void> CommShared::do_register(void* data, size_t bytes) {
    if (size_ == 1) return nullptr;
    Offer mine = {::getpid(), bytes >= sizeof(Offer::key) ? part_create(bytes) : -1, int64_t(bytes),
                  0};
    char* part = mine.fd >= 0 ? part_map(int(mine.fd), bytes) : nullptr;
    if (part && ::getrandom(&mine.key, sizeof mine.key, 0) == sizeof mine.key)
        std::memcpy(part, &mine.key, sizeof mine.key);
    std::vector<Offer> offers(static_cast<size_t>(size_));
    constexpr size_t words = sizeof(Offer) / sizeof(int64_t);
    do_all_gather(offers.data(), &mine, {words * size_t(size_), words}, Dtype::I64);

    Registered all{bytes, {}};
    for (int r = 0; r < size_; r++)
        all.parts.push_back(r == rank_ ? part : part_find(offers[size_t(r)], bytes));
    int32_t ok = std::find(all.parts.begin(), all.parts.end(), nullptr) == all.parts.end();
    do_all_reduce(&ok, 1, Dtype::I32, ReduceOp::Min);
    // All have found all; no rank writes into another's before that one has come to a collective.
    if (part) std::memset(part, 0, sizeof mine.key), ::munmap(part, bytes);
    all.parts[size_t(rank_)] = static_cast<char*>(data);
    if (ok) {
        CHECK(part_map(int(mine.fd), bytes, data), Exit::Resource, "cannot map shared memory",
              std::strerror(errno), str(bytes, " bytes"));
        registered_.push_back(all);
    } else {
        for (int r = 0; r < size_; r++)
            if (r != rank_ && all.parts[size_t(r)]) ::munmap(all.parts[size_t(r)], bytes);
    }
    if (mine.fd >= 0) ::close(int(mine.fd));
    if (!ok) return nullptr;
    return {data, [this](void* p) { deregister(p); }};
}

void CommShared::deregister(void* data) {
    for (size_t i = 0; i < registered_.size(); i++) {
        const Registered& all = registered_[i];
        if (all.parts[size_t(rank_)] != data) continue;
        for (int r = 0; r < size_; r++)
            if (r != rank_) ::munmap(all.parts[size_t(r)], all.bytes);
        registered_.erase(registered_.begin() + ptrdiff_t(i));
        return;
    }
}

CommShared::Places CommShared::everywhere(const void* data) const {
    for (const Registered& all : registered_) {
        const ptrdiff_t offset = static_cast<const char*>(data) - all.parts[size_t(rank_)];
        if (offset >= 0 && size_t(offset) < all.bytes)
            return shifted<char*>(all.parts, size_t(offset));
    }
    return {};
}

// ---- meeting

static void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
    timespec nap{0, kNap};
    ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &nap, nullptr, 0);
}

// After the value has changed: either this sees the sleeper, or the sleeper saw the new value
// before it slept.
void CommShared::wake(SharedCount& count) {
    if (count.sleepers.load() > 0) ::syscall(SYS_futex, &count.value, FUTEX_WAKE, INT32_MAX);
}
void CommShared::post(SharedCount& count, uint32_t value) {
    count.value.store(value);
    wake(count);
}

// Ranks that share cores let each other run, which takes a fraction of sleeping and being woken. On
// a core that someone else keeps busy a yield costs his whole time slice, and sleeping is better.
template <class There>
bool CommShared::yield_until(There there) const {
    if (sleeps_ > 0) return sleeps_--, false;
    for (int i = 0; i < kYields; i++) {
        if (there()) return true;
        const double begin = comm_clock();
        ::sched_yield();
        if (comm_clock() - begin > kLong) {
            sleeps_ = kSleeps;
            break;
        }
    }
    return there();
}

void CommShared::wait_for(SharedCount& count, uint32_t target) const {
    const auto there = [&](uint32_t value) { return int32_t(value - target) >= 0; };
    for (int i = 0; i < spins_; i++) {
        if (there(count.value.load(std::memory_order_acquire))) return;
        __builtin_ia32_pause();
    }
    if (spins_ == 0 && yield_until([&] { return there(count.value.load()); })) return;
    count.sleepers++;
    for (uint32_t seen; !there(seen = count.value.load());) {
        futex_wait(count.value, seen);
        const int32_t failed = failure_ ? failure_->load() : 0;
        if (failed && !there(count.value.load())) {
            count.sleepers--;
            throw failure_of(failed);
        }
    }
    count.sleepers--;
}

void CommShared::meet() {
    met_++;
    const uint32_t all = met_ * uint32_t(size_);
    SharedCount& come = counts_[0];
    if (come.value.fetch_add(1) + 1 == all)
        wake(come);  // the last one
    else
        wait_for(come, all);
}

// ---- pieces

// `places`: slices that lie in one box together.
CommShared::Piece CommShared::cut(Slices s, Dtype t, int places) const {
    const size_t width = dtype_bytes(t);
    return {s, width, std::min(kPiece / size_t(places) / width, std::max<size_t>(s.count(0), 1))};
}

void CommShared::copy_in(const Piece& p, size_t piece, const char* all) const {
    for (int r = 0; r < size_; r++)
        if (r != rank_)
            std::memcpy(inbox(rank_, 0) + size_t(r) * p.each * p.width,
                        all + (p.s.begin(r) + p.first(piece)) * p.width,
                        p.count(r, piece) * p.width);
}

// Where all ranks' values of a piece of my slice lie.
std::vector<const void*> CommShared::sources(const Piece& p, size_t piece, const char* all) const {
    std::vector<const void*> from;
    for (int r = 0; r < size_; r++)
        from.push_back(r == rank_ ? all + (p.s.begin(r) + p.first(piece)) * p.width
                                  : inbox(r, 1) + size_t(rank_) * p.each * p.width);
    return from;
}

void CommShared::publish(const Piece& p, size_t piece, const char* mine) const {
    std::memcpy(outbox(rank_, 0), mine + p.first(piece) * p.width, p.count(rank_, piece) * p.width);
}

void CommShared::copy_out(const Piece& p, size_t piece, char* all) const {
    for (int r = 0; r < size_; r++)
        if (r != rank_)
            std::memcpy(all + (p.s.begin(r) + p.first(piece)) * p.width, outbox(r, 1),
                        p.count(r, piece) * p.width);
}

// ---- the collectives

// One meeting: everybody shows all, and adds up all, in the same order.
void CommShared::small_all_reduce(void* data, size_t n, Dtype t, ReduceOp op) {
    std::memcpy(outbox(rank_, 0), data, n * dtype_bytes(t));
    meet();
    std::vector<const void*> from;
    for (int r = 0; r < size_; r++) from.push_back(outbox(r, 1));
    combine({data}, from, n, t, op);
}

void CommShared::do_all_reduce(void* data, size_t n, Dtype t, ReduceOp op) {
    const size_t width = dtype_bytes(t);
    if (n == 0) return;
    if (n * width <= kSmall) return small_all_reduce(data, n, t, op);
    // Slices begin at multiples of a cache line.
    const size_t ranks = size_t(size_), each = round_up((n + ranks - 1) / ranks, 64);
    if (const Places at = everywhere(data); !at.empty()) {
        const size_t shift = Slices{n, each}.begin(rank_) * width;
        meet();
        combine(shifted<void*>(at, shift), shifted<const void*>(at, shift),
                Slices{n, each}.count(rank_), t, op);
        return meet();
    }
    const Piece p = cut({n, each}, t, size_);
    char *all = static_cast<char*>(data), *mine = all + p.s.begin(rank_) * width;
    for (size_t period = 0; period < p.pieces() + 2; period++) {
        if (period < p.pieces()) copy_in(p, period, all);
        if (period >= 1 && period <= p.pieces()) {
            const size_t piece = period - 1;
            combine({mine + p.first(piece) * width, outbox(rank_, 0)}, sources(p, piece, all),
                    p.count(rank_, piece), t, op);
        }
        if (period >= 2) copy_out(p, period - 2, all);
        if (period < p.pieces() + 1) meet();
    }
}

void CommShared::do_reduce_scatter(void* mine, const void* from, Slices s, Dtype t, ReduceOp op) {
    const Piece p = cut(s, t, size_);
    if (const Places at = everywhere(from); !at.empty()) {
        meet();
        combine({mine}, shifted<const void*>(at, s.begin(rank_) * p.width), s.count(rank_), t, op);
        return meet();
    }
    const char* all = static_cast<const char*>(from);
    for (size_t period = 0; period < p.pieces() + 1; period++) {
        if (period >= 1)
            combine({static_cast<char*>(mine) + p.first(period - 1) * p.width},
                    sources(p, period - 1, all), p.count(rank_, period - 1), t, op);
        if (period < p.pieces()) {
            copy_in(p, period, all);
            meet();
        }
    }
}

void CommShared::do_all_to_all(void* data, Slices s, Dtype t, const Take& take, void*) {
    const Piece p = cut(s, t, size_);
    if (const Places at = everywhere(data); !at.empty()) {
        meet();
        for (size_t piece = 0; piece < p.pieces() && p.count(rank_, piece); piece++)
            for (char* rank : at)
                take(rank + (s.begin(rank_) + p.first(piece)) * p.width, p.first(piece),
                     p.count(rank_, piece));
        return meet();
    }
    const char* all = static_cast<const char*>(data);
    for (size_t period = 0; period < p.pieces() + 1; period++) {
        if (period >= 1 && p.count(rank_, period - 1))
            for (const void* from : sources(p, period - 1, all))
                take(const_cast<void*>(from), p.first(period - 1), p.count(rank_, period - 1));
        if (period < p.pieces()) {
            copy_in(p, period, all);
            meet();
        }
    }
}

void CommShared::do_all_gather(void* to, const void* from, Slices s, Dtype t) {
    const Piece p = cut(s, t, 1);
    char *all = static_cast<char*>(to), *place = all + s.begin(rank_) * p.width;
    const char* mine = static_cast<const char*>(from);
    const bool in_place = mine == place;
    const Places at = everywhere(in_place ? all : mine);
    if (!in_place) std::memmove(place, mine, s.count(rank_) * p.width);
    if (!at.empty()) {
        meet();
        for (int i = 1; i < size_; i++) {
            const int r = (rank_ + i) % size_;
            std::memcpy(all + s.begin(r) * p.width,
                        at[size_t(r)] + (in_place ? s.begin(r) * p.width : 0),
                        s.count(r) * p.width);
        }
        return meet();
    }
    for (size_t period = 0; period < p.pieces() + 1; period++) {
        if (period < p.pieces()) publish(p, period, place);
        if (period >= 1) copy_out(p, period - 1, all);
        if (period < p.pieces()) meet();
    }
}

void CommShared::do_broadcast(void* data, size_t n, Dtype t, int root) {
    const size_t bytes = n * dtype_bytes(t), pieces = (bytes + kPiece - 1) / kPiece;
    const auto size = [&](size_t piece) { return std::min(kPiece, bytes - piece * kPiece); };
    char* place = static_cast<char*>(data);
    if (const Places at = everywhere(data); !at.empty()) {
        meet();
        if (rank_ != root) std::memcpy(place, at[size_t(root)], bytes);
        return meet();
    }
    for (size_t period = 0; period < pieces + 1; period++) {
        if (rank_ == root && period < pieces)
            std::memcpy(outbox(root, 0), place + period * kPiece, size(period));
        if (rank_ != root && period >= 1)
            std::memcpy(place + (period - 1) * kPiece, outbox(root, 1), size(period - 1));
        if (period < pieces) meet();
    }
}

// A letter is put into the box when the one before has been taken.
void CommShared::do_send(const void* data, size_t n, Dtype t, int to) {
    SharedCount &sent = mail(rank_, to, 0), &taken = mail(rank_, to, 1);
    const size_t bytes = n * dtype_bytes(t);
    for (size_t at = 0; at < bytes; at += kMail) {
        const uint32_t count = sent.value.load();
        wait_for(taken, count);
        std::memcpy(mailbox(rank_, to), static_cast<const char*>(data) + at,
                    std::min(kMail, bytes - at));
        post(sent, count + 1);
    }
}

void CommShared::do_recv(void* data, size_t n, Dtype t, int from) {
    SharedCount &sent = mail(from, rank_, 0), &taken = mail(from, rank_, 1);
    const size_t bytes = n * dtype_bytes(t);
    for (size_t at = 0; at < bytes; at += kMail) {
        const uint32_t count = taken.value.load();
        wait_for(sent, count + 1);
        std::memcpy(static_cast<char*>(data) + at, mailbox(from, rank_),
                    std::min(kMail, bytes - at));
        post(taken, count + 1);
    }
}
