// dev/fault/power_loss.h: the states of a disk that a power loss may leave, from a log of calls.
//
// The model is POSIX without any file system's favours: a change of a file's bytes is on the disk
// after an fsync of that file, a change of a directory's names after an fsync of that directory,
// and until then each single change may be there or not, in any combination; a write may also be
// there in part, or as zeros (the length grew, the data did not come). A rename is one change.
// What we leave out: bytes rotting after an fsync, and a device that lies about it.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dev/fault/fault.h"

// Path -> bytes of a file, or nothing for a directory.
using DiskTree = std::map<std::string, std::optional<std::string>>;

// What becomes of a change that was not synced.
enum class Fate { Kept, Lost, Half, Zeros };

class Disk {
  public:
    // The next call of the log. Calls and Marks are no changes and are ignored.
    void add(const FaultRecord& r);
    size_t changes() const { return changes_.size(); }
    // The changes that no fsync has made durable, by number.
    std::vector<size_t> pending() const;
    bool is_write(size_t change) const;  // of bytes, not of names
    // The disk after a power loss now, each pending change meeting its fate.
    DiskTree after(const std::function<Fate(size_t)>& fate) const;

  private:
    enum class Kind { Write, Truncate, Link, Unlink, Rename };
    struct Change {
        Kind kind;
        int inode;           // the file whose bytes change, or the directory whose names do
        std::string name;    // Link, Unlink, Rename: the name that comes or goes
        std::string from;    // Rename: the old name
        int target = -1;     // Link, Rename: what the name stands for
        int64_t offset = 0;  // Write; the size for Truncate
        std::string data;
        bool durable = false;
    };
    struct Inode {
        bool directory = false;
        std::map<std::string, int> names;
        std::string bytes;
    };
    int find(const std::string& path) const;  // in the tree as programs see it
    std::pair<int, std::string> find_parent(const std::string& path) const;
    static void apply(const Change& c, Fate fate, std::vector<Inode>& inodes);
    void change(Change c);

    std::vector<Change> changes_;
    std::vector<Inode> now_{{true, {}, ""}};  // as programs see it; 0 is the watched directory
};

// The directory as it is, and a directory made from a tree.
DiskTree tree_read(const std::string& dir);
void tree_write(const DiskTree& tree, const std::string& dir);
