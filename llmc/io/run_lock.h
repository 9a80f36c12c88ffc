// llmc/io/run_lock.h: one run at a time in an --out directory, and only in one of ours.
//
//     OUT/.lock        an fcntl lock on it is held while the run lives; the system drops it
//                      with the process, so that a lock left by a crash does not block
//     OUT/owner.json   {"program":"train_gpt","run_id":..,"host":..,"pid":..}: marks OUT as ours,
//                      and names the holder to a second run
#pragma once
#include <functional>
#include <string>

#include "llmc/io/files.h"
#include "llmc/parallel/comm.h"

// The run id in owner.json of OUT; empty where no run of ours has been.
std::string run_owner(const std::string& out_dir);

class RunLock {
  public:
    // Creates OUT if it is missing and takes it for this run. Collective: rank 0 does it, all ranks
    // throw the same Error, Exit::Usage, if OUT is in use by another run, holds files but no
    // owner.json of ours, or cannot be written; nor is it good if a rank cannot write to the
    // directory that rank 0 has taken, or sees another one under that name.
    // patience: seconds to wait for a run that holds OUT, said once on stderr, and for a network
    // file system to show all ranks the same. The lock of a machine that died is held for a while
    // (NFSv4: a lease, often 90 s), and that of a process in an endless read until it ends. Once
    // `stop` is true on a rank nobody waits any more: Exit::Signalled.
    RunLock(const std::string& out_dir, const std::string& run_id, Comm& comm, double patience = 0,
            const std::function<bool()>& stop = {});

  private:
    Fd lock_;  // on rank 0
};
