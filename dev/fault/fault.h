// dev/fault/fault.h: a library that stands between a program and the system's file calls.
//
// It counts the calls on paths below one directory and can kill the process at the n-th, fail it,
// leave calls of one kind undone, flip a bit on the way to the disk, and log what changed, so that
// the states a power loss may leave can be built from the log (power_loss.h). The production code
// has no switch for any of this.
// Load it into any program with LD_PRELOAD and FAULT_... variables (README.md), or link it first
// and call fault_arm.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

enum class FaultOp {
    Open,
    Create,
    Read,
    Write,
    Sync,
    Close,
    Rename,
    Unlink,
    Mkdir,
    Rmdir,
    Truncate,
    Stat,
    List,
    Call,  // in logs only: a counted call was made; `path` is its kind
    Mark,  // in logs only: fault_mark
};

struct FaultPlan {
    std::string dir;  // absolute; calls on what lies below it (and on itself) are watched
    std::string log;  // file for the log, outside dir; empty: no log

    int kill_at = 0;         // SIGKILL in place of the n-th call, counted from 1
    bool kill_torn = false;  // if that call is a write, half of it is done first

    int fail_at = 0;     // the n-th call fails
    int fail_errno = 0;  // with this; 0: a write or read does only half of its bytes
    bool stays = false;  // and so do all later calls that need room: the disk stays full

    // Calls of this kind (a final '*': starting so) do nothing and succeed. The log's records of
    // Call name the kinds.
    std::string ignore;

    int flip_at = 0;         // one bit of the n-th call, a write, is flipped on its way
    bool hide_flip = false;  // reads by this process do not see it (as if never read back)

    int64_t free_bytes = -1;  // what statvfs reports, if not negative

    int delay_ms = 0;  // every call takes that much longer: a slow disk
};

// A logged call that succeeded and changed something, or Call or Mark.
struct FaultRecord {
    FaultOp op = FaultOp::Call;
    std::string path, to;  // relative to dir, of Call the kind; `to` is Rename's new name
    int64_t offset = 0;    // of Write; the size for Truncate
    std::string data;      // of Write; the text of Mark
};

void fault_arm(const FaultPlan& plan);
void fault_disarm();
int fault_calls();  // counted since fault_arm
void fault_mark(const std::string& text);
std::vector<FaultRecord> fault_log_read(const std::string& path);

// path with numbers and ids replaced by '#': "out/ckpt/step-#.tmp-#/shards/rank-#.h5".
std::string fault_role(const std::string& path);
const char* fault_op_name(FaultOp op);
