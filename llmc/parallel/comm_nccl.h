// llmc/parallel/comm_nccl.h: collectives between GPUs, one process each, by NCCL.
//
// NCCL introduces its ranks over another communicator, of host memory: rank 0's id is broadcast
// there. From then on every call is queued on a stream of this communicator and returns at once.
// NCCL is found at run time (nccl_library.cu), so one binary also starts where it is missing; in
// the simulator it is the simulator's.
//
// A GPU that waits for a rank that is gone waits for ever, and the host with it. So the watchdog's
// thread asks now and then what NCCL has noticed, and gives the communicators up: what was queued
// ends, with garbage, and the next call throws PeerFailed, before anybody has looked at it.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "llmc/parallel/comm.h"

constexpr int kNcclLeast = 21800;  // 2.18, as NCCL counts: 10000 * major + 100 * minor + patch

// "2.18.3"; before 2.9 NCCL counted in thousands.
std::string nccl_version_text(int code);
// Throws Error(Exit::Resource) if that is too old.
void nccl_version_check(int code);

// Collective over the ranks of `host`, each with its GPU in use; two on one GPU are refused.
// `failure`: who has failed on this host, for PeerFailed (comm_shared.h).
std::unique_ptr<Comm> comm_nccl(Comm& host, const std::atomic<int32_t>* failure);

// For the table of what will run: "NCCL 2.28.9; GPU 0 to others of this host: 7 by NVLink".
std::string nccl_text();

// ---- for the watchdog's thread
// What has gone wrong behind our back on any communicator; empty: nothing.
std::string nccl_async_error();
// Gives all communicators up.
void nccl_abort();
