#include "llmc/parallel/world.h"

#include <unistd.h>

#include "llmc/core/check.h"

World world_init() {
    World world;
    char host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    world.host = host;
    world.dp = comm_self();
    return world;
}

std::string world_prefix(const World& world) {
    return str("[rank ", world.rank, "/", world.size, " ", world.host, "] ");
}
