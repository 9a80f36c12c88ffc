// llmc/io/checkpoint_agree.h: how the ranks of a save or load come to one verdict, and pass texts.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "llmc/core/check.h"
#include "llmc/parallel/comm.h"

// Every rank's text, on every rank, in rank order.
std::vector<std::string> gather_text(Comm& comm, const std::string& mine);
// Rank 0's text, on every rank.
std::string broadcast_text(Comm& comm, const std::string& mine);

// Runs `work` here and asks all ranks how theirs went. All get the same answer: nothing, or the
// error of the lowest rank that failed. `work` must not communicate: a rank that failed in the
// middle of it would leave the others waiting.
std::optional<Error> agree(Comm& comm, const std::function<void()>& work);
// The same for work that rank 0 does alone.
std::optional<Error> agree_on_root(Comm& comm, const std::function<void()>& work);

// Asks again and again, with a pause in between, until the answer is true on all ranks or `seconds`
// are over; returns whether it was. Each try is a collective, hence a sign of life for the
// watchdogs of all ranks. `ask` may communicate, but must not throw.
bool wait_for_all(Comm& comm, double seconds, const std::function<bool()>& ask,
                  const std::function<bool()>& stop = {});
// A network file system may show a moment later what another machine has written.
constexpr double kSeenSeconds = 3, kSeenMost = 120;
