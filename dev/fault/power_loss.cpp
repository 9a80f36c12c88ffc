#include "dev/fault/power_loss.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace fs = std::filesystem;

// ---- replaying

std::pair<int, std::string> Disk::find_parent(const std::string& path) const {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return {0, path};
    return {find(path.substr(0, slash)), path.substr(slash + 1)};
}

int Disk::find(const std::string& path) const {
    if (path == ".") return 0;
    const auto [parent, name] = find_parent(path);
    const auto& names = now_[size_t(parent)].names;
    const auto it = names.find(name);
    if (it == names.end()) throw std::logic_error("the log names what it did not create: " + path);
    return it->second;
}

void Disk::apply(const Change& c, Fate fate, std::vector<Inode>& inodes) {
    Inode& inode = inodes[size_t(c.inode)];
    if (fate == Fate::Lost) return;
    switch (c.kind) {
        case Kind::Write: {
            const size_t end = size_t(c.offset) + c.data.size();
            if (inode.bytes.size() < end) inode.bytes.resize(end);
            const size_t n = fate == Fate::Half ? c.data.size() / 2 : c.data.size();
            char* to = inode.bytes.data() + c.offset;
            if (fate == Fate::Zeros)
                std::memset(to, 0, n);
            else
                std::memcpy(to, c.data.data(), n);
            break;
        }
        case Kind::Truncate:
            inode.bytes.resize(size_t(c.offset));
            break;
        case Kind::Link:
            inode.names[c.name] = c.target;
            break;
        case Kind::Unlink:
            inode.names.erase(c.name);
            break;
        case Kind::Rename:
            inode.names.erase(c.from);
            inode.names[c.name] = c.target;
            break;
    }
}

void Disk::change(Change c) {
    apply(c, Fate::Kept, now_);
    changes_.push_back(std::move(c));
}

void Disk::add(const FaultRecord& r) {
    switch (r.op) {
        case FaultOp::Create:
        case FaultOp::Mkdir: {
            const auto [parent, name] = find_parent(r.path);
            now_.push_back({r.op == FaultOp::Mkdir, {}, ""});
            change({Kind::Link, parent, name, "", int(now_.size()) - 1, 0, "", false});
            break;
        }
        case FaultOp::Write:
            change({Kind::Write, find(r.path), "", "", -1, r.offset, r.data, false});
            break;
        case FaultOp::Truncate:
            change({Kind::Truncate, find(r.path), "", "", -1, r.offset, "", false});
            break;
        case FaultOp::Unlink:
        case FaultOp::Rmdir: {
            const auto [parent, name] = find_parent(r.path);
            change({Kind::Unlink, parent, name, "", -1, 0, "", false});
            break;
        }
        case FaultOp::Rename: {
            const auto [parent, from] = find_parent(r.path);
            const auto [to_parent, to] = find_parent(r.to);
            if (parent != to_parent) throw std::logic_error("a rename between directories");
            change({Kind::Rename, parent, to, from, find(r.path), 0, "", false});
            break;
        }
        case FaultOp::Sync: {
            const int inode = find(r.path);
            for (Change& c : changes_) c.durable = c.durable || c.inode == inode;
            break;
        }
        default:
            break;
    }
}

std::vector<size_t> Disk::pending() const {
    std::vector<size_t> list;
    for (size_t i = 0; i < changes_.size(); i++)
        if (!changes_[i].durable) list.push_back(i);
    return list;
}

bool Disk::is_write(size_t i) const {
    return changes_[i].kind == Kind::Write || changes_[i].kind == Kind::Truncate;
}

DiskTree Disk::after(const std::function<Fate(size_t)>& fate) const {
    std::vector<Inode> inodes(now_.size());
    for (size_t i = 0; i < now_.size(); i++) inodes[i].directory = now_[i].directory;
    for (size_t i = 0; i < changes_.size(); i++)
        apply(changes_[i], changes_[i].durable ? Fate::Kept : fate(i), inodes);
    // What is reachable by names is what there is.
    DiskTree tree;
    const std::function<void(int, const std::string&)> walk = [&](int at, const std::string& path) {
        for (const auto& [name, target] : inodes[size_t(at)].names) {
            const Inode& inode = inodes[size_t(target)];
            tree[path + name] = inode.directory ? std::nullopt : std::optional(inode.bytes);
            if (inode.directory) walk(target, path + name + "/");
        }
    };
    walk(0, "");
    return tree;
}

// ---- trees and directories

DiskTree tree_read(const std::string& dir) {
    DiskTree tree;
    for (const auto& entry : fs::recursive_directory_iterator(dir)) {
        const std::string path = fs::relative(entry.path(), dir).string();
        if (entry.is_directory()) {
            tree[path] = std::nullopt;
        } else {
            std::ifstream in(entry.path(), std::ios::binary);
            std::ostringstream bytes;
            bytes << in.rdbuf();
            tree[path] = bytes.str();
        }
    }
    return tree;
}

void tree_write(const DiskTree& tree, const std::string& dir) {
    fs::create_directories(dir);
    for (const auto& [path, bytes] : tree) {
        if (!bytes)
            fs::create_directories(dir + "/" + path);
        else
            std::ofstream(dir + "/" + path, std::ios::binary) << *bytes;
    }
}
