// llmc/io/checkpoint.h: the state of a run on disk: saved so that an acknowledged save is never
// lost, loaded so that a wrong byte is never accepted, by any number of ranks.
//
//     OUT/ckpt/step-0000001200/       immutable once it has this name
//         shards/rank-00000.h5 ...    one HDF5 file a rank: /<group>/<tensor>/<flat offset>
//         model.h5                    the weights in their shapes, for h5py; never read by us
//         manifest.json               what belongs to it, digests, hashes
//     OUT/ckpt/latest                 the newest one's name: a hint for people, never trusted
//     OUT/ckpt/step-....tmp-<id>      being written
//     OUT/ckpt/step-....del           being deleted
//     OUT/ckpt/step-....bad           refused
//     OUT/ckpt/step-....aside         of a branch that was abandoned (checkpoint_set_aside)
//
// All functions are collective: every rank of comm calls them, and all ranks come to the same
// verdict. The protocol, and why each step is there: dev/doc/checkpoint.md.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "llmc/core/dtype.h"
#include "llmc/core/layout.h"
#include "llmc/io/manifest.h"
#include "llmc/parallel/comm.h"

// A flat range of a named global tensor, in this rank's host memory. ZeRO cuts tensors anywhere, so
// a piece need not be whole rows. An empty piece (count 0) is allowed and not stored.
struct TensorPiece {
    std::string group;           // weights | m | v (manifest.h)
    std::string name;            // letters, digits, '.', '_', '-'
    Dtype dtype = Dtype::F32;    // F32 or BF16
    std::vector<int64_t> shape;  // of the global tensor
    int64_t offset = 0, count = 0;
    void* data = nullptr;  // (count): saved from, or loaded into
    // Saved from what this writes, where there is no data: elements first .. first + n of the
    // tensor. It is asked twice, in steps of some MiB.
    std::function<void(int64_t first, int64_t n, void* to)> fill = nullptr;
};

// ---- saving

// What a run remembers between its saves: which checkpoints it has verified itself, hence may count
// on when it deletes older ones.
struct Saves {
    int keep = 2;                   // newest verified ones that stay; less than 2 means 2
    std::string resumed_from;       // path of the checkpoint the run started from: never deleted
    std::vector<int64_t> verified;  // steps; maintained by checkpoint_save
};

struct SaveResult {
    bool ok = false;
    std::string path;    // the checkpoint's directory
    std::string reason;  // why it failed; or, though it is saved, what went wrong in tidying up
    std::string state;   // hash of the state, as `train_gpt verify` prints it
    int64_t bytes = 0;   // of all files but manifest.json
};

// Writes the state at meta.step (equal on all ranks; the rest of meta is rank 0's) to
// out_dir/ckpt. Over all ranks the pieces must tile each tensor exactly: what several ranks hold,
// one of them hands in. When it returns ok the checkpoint survives a crash of the machine. On any
// error, on any rank, nothing is saved, older checkpoints are untouched and all ranks get the
// reason; it throws nothing. The caller holds the RunLock of out_dir. If the same state is already
// saved under this step, that is success. Needs no memory but some MiB: the pieces are written from
// where they lie.
SaveResult checkpoint_save(const std::string& out_dir, const CheckpointMeta& meta,
                           const std::vector<TensorPiece>& my_pieces, Comm& comm, Saves& saves);

// Sets aside all checkpoints of out_dir newer than `step` (rename to step-N.aside, named on
// stderr): a run that starts over, or from an older checkpoint, must not resume from the abandoned
// branch later.
void checkpoint_set_aside(const std::string& out_dir, int64_t step, Comm& comm);

// ---- loading

struct OpenCheckpoint {
    std::string path;
    Manifest manifest;  // .meta, .state, .tensors
};

// The newest checkpoint of out_dir that is whole: every file is there with its size and digest,
// nothing else is, every piece lies where it should. Refused ones are named on stderr and renamed
// to .bad. None at all: nullopt. Some, but none valid: Error with Exit::Damaged; a run never starts
// over silently. The caller holds the RunLock of out_dir. patience: seconds that a network file
// system may take until all ranks see the same.
std::optional<OpenCheckpoint> checkpoint_find(const std::string& out_dir, Comm& comm,
                                              double patience = 0);

// The checkpoint at path, checked in the same way; or, if path is an OUT directory, its newest
// valid one. Renames nothing; throws if there is none.
OpenCheckpoint checkpoint_open(const std::string& path, Comm& comm);

// What the checkpoint at path, or the newest one of an OUT directory, says about its run: its
// manifest alone, which carries its own digest. Not collective. Throws if there is none.
CheckpointMeta checkpoint_peek(const std::string& path);

// Some: the caller wants these tensors, and there may be more. All: the caller wants every tensor
// that the checkpoint has (a resume must not drop the optimizer by mistake).
enum class Want { Some, All };

// Fills the wanted pieces from a checkpoint of any layout. Over all ranks every element of a wanted
// tensor must be wanted equally often (once: slices; size() times: whole copies), so that the
// tensor's hash can be checked on what has arrived in memory. Throws Exit::Usage if the checkpoint
// holds other tensors than the model, Exit::Damaged if a byte is wrong.
void checkpoint_read(const OpenCheckpoint& checkpoint, const std::vector<TensorPiece>& wanted,
                     Comm& comm, Want want = Want::All);

// The weights for this rank alone, piece by piece, while `checkpoint` lives: of any model that fits
// on disk. Each element is to be asked for once: when the last one of a tensor has arrived, the
// tensor's hash is checked. Errors as above.
TensorSource checkpoint_source(const OpenCheckpoint& checkpoint);

// Checks every digest, every piece and every tensor's hash in bounded memory; returns the state's
// hash, which does not depend on the layout. Throws if anything is wrong.
std::string checkpoint_verify(const std::string& path, Comm& comm);

// The hash that a save of these pieces would store.
std::string checkpoint_state_hash(const std::vector<TensorPiece>& my_pieces, Comm& comm);

// Bytes on disk of a checkpoint of these pieces (one list a rank; data may be null), to the byte,
// but for manifest.json, whose text depends on the values in it: it is bounded separately. meta: as
// it will be, tokenizer and all; its numbers may have grown by then.
struct CheckpointBytes {
    int64_t shards = 0, view = 0;  // exact
    int64_t manifest = 0;          // upper bound
    int64_t total() const { return shards + view + manifest; }
};
CheckpointBytes checkpoint_bytes(const std::vector<std::vector<TensorPiece>>& pieces_of_rank,
                                 const CheckpointMeta& meta);
