#include "llmc/io/checkpoint_agree.h"

#include <chrono>
#include <cstring>
#include <thread>

// The communicator moves numbers: a text travels as int32 words, its length ahead of it.
static std::vector<int32_t> to_words(const std::string& text, int64_t longest) {
    std::vector<int32_t> words(size_t(longest + 3) / 4);
    if (!text.empty()) std::memcpy(words.data(), text.data(), text.size());
    return words;
}

std::vector<std::string> gather_text(Comm& comm, const std::string& mine) {
    const int ranks = comm.size();
    const int64_t length = int64_t(mine.size());
    std::vector<int64_t> lengths(ranks);
    comm.all_gather(lengths.data(), &length, 1, "lengths of texts");
    int64_t longest = 0;
    for (int64_t n : lengths) longest = std::max(longest, n);
    const std::vector<int32_t> words = to_words(mine, longest);
    std::vector<int32_t> all(words.size() * size_t(ranks));
    comm.all_gather(all.data(), words.data(), words.size(), "texts of all ranks");
    std::vector<std::string> texts;
    for (int r = 0; r < ranks; r++)
        texts.emplace_back(reinterpret_cast<const char*>(all.data() + words.size() * size_t(r)),
                           size_t(lengths[r]));
    return texts;
}

std::string broadcast_text(Comm& comm, const std::string& mine) {
    int64_t length = int64_t(mine.size());
    comm.broadcast(&length, 1, 0, "length of a text");
    std::vector<int32_t> words =
        to_words(comm.rank() == 0 ? mine : std::string(size_t(length), '\0'), length);
    comm.broadcast(words.data(), words.size(), 0, "text of rank 0");
    return {reinterpret_cast<const char*>(words.data()), size_t(length)};
}

// Exit code and message of an error as one text, and back; no error is the empty text.
static std::string error_text(const std::function<void()>& work) {
    try {
        work();
        return "";
    } catch (const Error& e) {
        return std::string(1, char('0' + int(e.code))) + e.what();
    } catch (const std::bad_alloc&) {
        return std::string(1, char('0' + int(Exit::Resource))) + "out of memory";
    } catch (const std::exception& e) {
        return std::string(1, char('0' + int(Exit::Resource))) + e.what();
    }
}

std::optional<Error> agree(Comm& comm, const std::function<void()>& work) {
    const std::string mine = error_text(work);
    int32_t ok = mine.empty();
    comm.all_reduce(&ok, 1, ReduceOp::Min, "did all succeed");
    if (ok) return std::nullopt;
    const std::vector<std::string> all = gather_text(comm, mine);
    for (size_t r = 0; r < all.size(); r++)
        if (!all[r].empty()) {
            const std::string who = comm.size() > 1 ? str("rank ", r, ": ") : "";
            return Error(Exit(all[r][0] - '0'), who + all[r].substr(1));
        }
    return Error(Exit::Resource, "a rank failed without a reason");
}

std::optional<Error> agree_on_root(Comm& comm, const std::function<void()>& work) {
    return agree(comm, [&] {
        if (comm.rank() == 0) work();
    });
}

bool wait_for_all(Comm& comm, double seconds, const std::function<bool()>& ask,
                  const std::function<bool()>& stop) {
    constexpr double pause = 0.1;
    for (double waited = 0;; waited += pause) {
        int32_t no_stop[2] = {!ask(), stop && stop()};
        comm.all_reduce(no_stop, 2, ReduceOp::Max, "waiting for what all ranks need");
        if (!no_stop[0] || waited >= seconds) return !no_stop[0];
        CHECK(!no_stop[1], Exit::Signalled,
              "stopped by a signal while waiting, with nothing to save");
        std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    }
}
