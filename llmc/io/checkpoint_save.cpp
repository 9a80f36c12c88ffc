// llmc/io/checkpoint_save.cpp: the write protocol. Numbers are those of dev/doc/checkpoint.md.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"
#include "llmc/io/checkpoint.h"
#include "llmc/io/checkpoint_agree.h"
#include "llmc/io/checkpoint_names.h"
#include "llmc/io/checkpoint_shard.h"
#include "llmc/io/files.h"

using nlohmann::json;

namespace {
// One save under way.
struct Save {
    const std::string& out;
    const CheckpointMeta& meta;
    const std::vector<TensorPiece>& pieces;  // this rank's
    Comm& comm;
    std::string dir;    // OUT/ckpt
    std::string path;   // OUT/ckpt/step-N
    std::string tmp;    // OUT/ckpt/step-N.tmp-<id>; empty until it is made
    Manifest manifest;  // what will be in it
};
}  // namespace

// ---- what is saved

static void check_pieces(const std::vector<TensorPiece>& pieces) {
    for (const TensorPiece& p : pieces) {
        const std::string what = str("piece ", p.group, "/", p.name, " at ", p.offset);
        CHECK(group_is_known(p.group) && name_is_plain(p.name), Exit::Usage, what, "such a name",
              "weights, master, m or v, then letters, digits, '.', '_', '-'");
        CHECK(p.dtype == Dtype::F32 || p.dtype == Dtype::BF16, Exit::Usage, what,
              dtype_name(p.dtype), "fp32 or bf16");
        const int64_t n = shape_count(p.shape);
        CHECK(p.offset >= 0 && p.count >= 0 && p.count <= n && p.offset <= n - p.count, Exit::Usage,
              what, counted(p.count, "element"), str("a range inside ", n));
    }
}

// This rank's pieces as text for the others, and back.
static json pieces_json(const std::vector<ShardPiece>& pieces) {
    json list = json::array();
    for (const ShardPiece& p : pieces)
        list.push_back(
            {p.group, p.name, int(p.dtype), p.shape, p.offset, p.count, p.hash.a, p.hash.b});
    return list;
}

// Joins the pieces of all ranks into tensors in name order.
static std::vector<ManifestTensor> join_tensors(const std::vector<json>& pieces_of_rank) {
    std::map<std::pair<std::string, std::string>, ManifestTensor> tensors;
    for (size_t rank = 0; rank < pieces_of_rank.size(); rank++)
        for (const json& p : pieces_of_rank[rank]) {
            const std::string group = p[0], name = p[1];
            const Dtype dtype = Dtype(p[2].get<int>());
            const std::vector<int64_t> shape = p[3];
            ManifestTensor& t = tensors[{group, name}];
            if (t.pieces.empty()) t = {group, name, dtype, shape, {}, {}};
            CHECK(t.dtype == dtype && t.shape == shape, Exit::Usage,
                  str("ranks disagree about the type or shape of ", group, "/", name));
            t.pieces.push_back({int(rank), p[4], p[5]});
            t.hash.add({p[6], p[7]});
        }
    std::vector<ManifestTensor> joined;
    for (auto& [key, t] : tensors) {
        std::sort(t.pieces.begin(), t.pieces.end(),
                  [](const auto& a, const auto& b) { return a.offset < b.offset; });
        joined.push_back(std::move(t));
    }
    return joined;
}

static std::vector<ManifestTensor> gather_tensors(const std::vector<ShardPiece>& mine, Comm& comm) {
    std::vector<json> all;
    for (const std::string& text : gather_text(comm, pieces_json(mine).dump()))
        all.push_back(json::parse(text));
    return join_tensors(all);
}

std::string checkpoint_state_hash(const std::vector<TensorPiece>& my_pieces, Comm& comm) {
    return manifest_state(gather_tensors(pieces_to_store(my_pieces, Hashes::Take), comm));
}

// ---- the size of it

static int64_t manifest_bound(const std::vector<ManifestTensor>& tensors, size_t files,
                              const CheckpointMeta& meta) {
    // A tensor entry holds its name, up to 8 dimensions of 19 digits and about 120 characters of
    // keys; a piece about 30 characters of keys and three numbers. 64 KiB for what meta has not
    // yet.
    int64_t bytes = (64 << 10) + 160 * int64_t(files);
    for (const ManifestTensor& t : tensors)
        bytes += 320 + int64_t(t.name.size()) + 100 * int64_t(t.pieces.size());
    for (const json* part : {&meta.model, &meta.train, &meta.layout})
        bytes += int64_t(part->dump(-1, ' ', false, json::error_handler_t::replace).size());
    return bytes;
}

// What rank 0 writes beside the shards. pieces_of_rank: pieces_json of each rank's.
static CheckpointBytes bytes_beside_shards(const std::vector<json>& pieces_of_rank,
                                           const CheckpointMeta& meta) {
    std::vector<ManifestFile> files;
    for (size_t rank = 0; rank < pieces_of_rank.size(); rank++)
        files.push_back({shard_name(int(rank)), 0, ""});
    const std::vector<ManifestTensor> tensors = join_tensors(pieces_of_rank);
    CheckpointBytes bytes;
    bytes.view = int64_t(view_image(files, tensors).size());
    bytes.manifest = manifest_bound(tensors, files.size() + 1, meta);
    return bytes;
}

CheckpointBytes checkpoint_bytes(const std::vector<std::vector<TensorPiece>>& pieces_of_rank,
                                 const CheckpointMeta& meta) {
    std::vector<json> all;
    int64_t shards = 0;
    for (const std::vector<TensorPiece>& pieces : pieces_of_rank) {
        check_pieces(pieces);
        shards += shard_bytes(pieces);
        all.push_back(pieces_json(pieces_to_store(pieces, Hashes::Leave)));
    }
    CheckpointBytes bytes = bytes_beside_shards(all, meta);
    bytes.shards = shards;
    return bytes;
}

// ---- the steps

// What killed saves and deletions have left. If it cannot be removed, that is no reason not to
// save.
static void remove_unfinished(const std::string& dir) {
    for (const std::string& name : dir_list(dir_open(dir), dir)) {
        if (!is_unfinished(name)) continue;
        try {
            tree_remove(dir + "/" + name);
        } catch (const Error& e) {
            checkpoint_warn(str("not removed: ", dir, "/", name, ": ", e.what()));
        }
    }
}

// Step 1. All ranks mean the same step, the pieces make sense, there is room.
static std::optional<Error> check_request(Save& s) {
    int64_t least = s.meta.step, most = s.meta.step, bytes = 0;
    s.comm.all_reduce(&least, 1, ReduceOp::Min, "step to save");
    s.comm.all_reduce(&most, 1, ReduceOp::Max, "step to save");
    auto error = agree(s.comm, [&] {
        CHECK(least == most, Exit::Usage, "ranks save different steps", str(least, " to ", most));
        CHECK(least >= 0 && least <= 9'999'999'999, Exit::Usage, "a step to save", str(least),
              "0 to 9999999999");
        check_pieces(s.pieces);
        bytes = shard_bytes_bound(s.pieces);
    });
    if (error) return error;
    s.comm.all_reduce(&bytes, 1, ReduceOp::Sum, "bytes of a save");
    const std::vector<std::string> texts =
        gather_text(s.comm, pieces_json(pieces_to_store(s.pieces, Hashes::Leave)).dump());
    return agree_on_root(s.comm, [&] {
        std::vector<json> pieces;
        for (const std::string& text : texts) pieces.push_back(json::parse(text));
        const CheckpointBytes beside = bytes_beside_shards(pieces, s.meta);
        bytes += beside.view + beside.manifest;
        if (!path_exists(s.dir)) {
            // If we are killed in between, RunLock syncs OUT at the next start.
            dir_make(s.dir);
            sync_dir(s.out);
        }
        remove_unfinished(s.dir);
        const int64_t room = free_bytes(s.dir);
        CHECK(room >= bytes, Exit::Resource, str("no room for a checkpoint in ", s.dir),
              str(counted(room, "byte"), " free"), str(bytes), "free some, or lower --keep");
    });
}

// Step 2. A directory of our own; its name tells the next run that nobody finished it.
static std::optional<Error> make_tmp(Save& s) {
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    char id[64];
    std::snprintf(id, sizeof id, ".tmp-%lx-%llx", (long)::getpid(), (unsigned long long)now);
    s.tmp = broadcast_text(s.comm, s.path + id);
    return agree_on_root(s.comm, [&] {
        dir_make(s.tmp);
        dir_make(s.tmp + "/shards");
    });
}

// Steps 3 to 5. This rank's file, synced, read back: the bytes of every piece in the file hash to
// what the memory hashes to, and the file's structure passes the checks of a load.
static std::optional<Error> write_shard(Save& s, ManifestFile& file,
                                        std::vector<ShardPiece>& hashed) {
    file.name = shard_name(s.comm.rank());
    const std::string path = s.tmp + "/" + file.name;
    if (auto error = agree(s.comm, [&] { shard_write(path, s.pieces); })) return error;
    return agree(s.comm, [&] {
        hashed = pieces_to_store(s.pieces, Hashes::Take);
        Fd fd = file_open_in(AT_FDCWD, path);
        std::vector<ShardPiece> found = shard_pieces(fd, path, hashed.size());
        file.bytes = file_size(fd, path);
        file.digest = shard_digest(fd, path, found);
        fd.close(path);
        const auto same = [](const ShardPiece& a, const ShardPiece& b) {
            return piece_same(a, b) && a.hash == b.hash;
        };
        CHECK(std::equal(found.begin(), found.end(), hashed.begin(), hashed.end(), same),
              Exit::Damaged, str(path, " does not read back as it was written"));
    });
}

// Steps 6 and 7. The manifest of all ranks' files, and the view, by rank 0.
static std::optional<Error> write_manifest(Save& s, const ManifestFile& file,
                                           const std::vector<ShardPiece>& hashed) {
    const json mine = {
        {"bytes", file.bytes}, {"digest", file.digest}, {"pieces", pieces_json(hashed)}};
    const std::vector<std::string> texts = gather_text(s.comm, mine.dump());
    return agree(s.comm, [&] {
        std::vector<json> pieces;
        for (const std::string& text : texts) {
            json j = json::parse(text);
            s.manifest.files.push_back({shard_name(int(pieces.size())), j["bytes"], j["digest"]});
            pieces.push_back(std::move(j["pieces"]));
        }
        s.manifest.meta = s.meta;
        s.manifest.tensors = join_tensors(pieces);
        s.manifest.state = manifest_state(s.manifest.tensors);
        const std::string view = view_image(s.manifest.files, s.manifest.tensors);
        s.manifest.files.push_back(
            {VIEW_FILE, int64_t(view.size()), digest_bytes(view.data(), view.size())});
        manifest_check(s.manifest);
        if (s.comm.rank() != 0) return;
        const std::string text = manifest_text(s.manifest);
        manifest_parse(text, "the manifest to be written");  // what a load would refuse is no save
        file_write_durable(s.tmp + "/" + VIEW_FILE, view);
        file_write_durable(s.tmp + "/" + MANIFEST_FILE, text);
    });
}

// Steps 8 to 10. Every name inside is made durable, then the directory gets its final name, then
// that name is made durable.
static std::optional<Error> publish(Save& s) {
    return agree_on_root(s.comm, [&] {
        sync_dir(s.tmp + "/shards");
        sync_dir(s.tmp);
        rename_path(s.tmp, s.path);
        sync_dir(s.dir);
    });
}

// ---- after the save, by rank 0; a failure here is reported but the checkpoint is saved

// Step 13. What is older than the `keep` newest verified checkpoints goes. The rename is durable
// before anything in the directory is deleted: under its final name a checkpoint is always whole.
static void retire_old(const Save& s, const Saves& saves) {
    const size_t keep = size_t(std::max(2, saves.keep));
    if (saves.verified.size() <= keep) return;
    const int64_t oldest_kept = saves.verified[saves.verified.size() - keep];
    for (const std::string& name : dir_list(dir_open(s.dir), s.dir)) {
        const int64_t step = step_of(name);
        const std::string path = s.dir + "/" + name;
        std::error_code none;
        if (step < 0 || step >= oldest_kept ||
            std::filesystem::equivalent(path, saves.resumed_from, none))
            continue;
        rename_path(path, path + ".del");
        sync_dir(s.dir);
        tree_remove(path + ".del");
    }
}

static std::string tidy_up(Save& s, const Saves& saves) {
    const auto error = agree_on_root(s.comm, [&] {
        file_replace(s.dir + "/latest", step_name(s.meta.step) + "\n");
        retire_old(s, saves);
    });
    return error ? str("saved, but tidying up failed: ", error->what()) : "";
}

// What this run may count on: the checkpoint it came from and those it has read back itself.
static void count_verified(const Save& s, Saves& saves) {
    const std::filesystem::path from(saves.resumed_from);
    std::error_code none;
    if (!from.empty() && std::filesystem::equivalent(from.parent_path(), s.dir, none))
        saves.verified.push_back(step_of(from.filename()));
    saves.verified.push_back(s.meta.step);
    std::sort(saves.verified.begin(), saves.verified.end());
    saves.verified.erase(std::unique(saves.verified.begin(), saves.verified.end()),
                         saves.verified.end());
}

static void abandon(Save& s) {
    agree_on_root(s.comm, [&] {
        // What cannot be removed now is removed by the next save; its name says that it may be.
        if (!s.tmp.empty() && path_exists(s.tmp)) tree_remove(s.tmp);
    });
}

// A run that resumed at this step, or is told twice to save it, finds it saved: success if it is
// whole and holds the same state. Whoever renamed it may have failed to make the name durable.
static std::optional<SaveResult> saved_already(Save& s, Saves& saves) {
    int32_t exists = 0;
    std::optional<Error> error = agree_on_root(s.comm, [&] { exists = path_exists(s.path); });
    s.comm.broadcast(&exists, 1, 0, "is it saved already");
    if (!error && !exists) return std::nullopt;
    SaveResult result;
    result.path = s.path;
    try {
        if (error) throw *error;
        result.state = checkpoint_state_hash(s.pieces, s.comm);
        const std::string found = checkpoint_open(s.path, s.comm).manifest.state;
        CHECK(found == result.state, Exit::Usage, str(s.path, " exists and holds another state"),
              found, result.state, "move it away, or use another --out");
        if ((error = agree_on_root(s.comm, [&] { sync_dir(s.dir); }))) throw *error;
        result.ok = true;
        count_verified(s, saves);
    } catch (const Error& e) {  // the same on all ranks
        result.reason = e.what();
    }
    return result;
}

SaveResult checkpoint_save(const std::string& out_dir, const CheckpointMeta& meta,
                           const std::vector<TensorPiece>& my_pieces, Comm& comm, Saves& saves) {
    const std::string dir = ckpt_dir(out_dir);
    Save s{out_dir, meta, my_pieces, comm, dir, dir + "/" + step_name(meta.step), "", {}};
    ManifestFile file;
    std::vector<ShardPiece> hashed;
    SaveResult result;
    std::optional<Error> error = check_request(s);
    if (!error) {
        if (auto already = saved_already(s, saves)) return *already;
    }
    if (!error) error = make_tmp(s);
    if (!error) error = write_shard(s, file, hashed);
    if (!error) error = write_manifest(s, file, hashed);
    if (!error) error = publish(s);
    if (error) {
        abandon(s);
        result.reason = error->what();
        return result;
    }
    // Step 11: saved.
    result.ok = true, result.path = s.path, result.state = s.manifest.state;
    for (const ManifestFile& f : s.manifest.files) result.bytes += f.bytes;
    count_verified(s, saves);
    result.reason = tidy_up(s, saves);
    return result;
}

void checkpoint_set_aside(const std::string& out_dir, int64_t step, Comm& comm) {
    const std::string dir = ckpt_dir(out_dir);
    auto error = agree_on_root(comm, [&] {
        if (!path_exists(dir)) return;
        for (const std::string& name : dir_list(dir_open(dir), dir)) {
            if (step_of(name) <= step) continue;
            const std::string to = rename_aside(dir, name, ".aside");
            checkpoint_warn(str("checkpoint ", dir, "/", name, " is newer than the start of this ",
                                "run: renamed to ", to));
        }
        sync_dir(dir);
    });
    if (error) throw *error;
}
