// llmc/parallel/world.h: my place among the ranks: one axis so far, dp (data parallel).
#pragma once
#include <memory>
#include <string>

#include "llmc/parallel/comm.h"

struct World {
    int rank = 0, size = 1;
    std::string host;
    std::unique_ptr<Comm> dp;  // all ranks, each with the same model and its own micro-batches
};

World world_init();

// "[rank 3/8 host] ", what every message on stderr starts with.
std::string world_prefix(const World& world);
