// llmc/io/h5.h: HDF5 handles that close themselves, a check for every return code, element types.
//
// HDF5's own error printing is switched off; the innermost message of its error stack becomes the
// text of our Error. Plugins are never loaded: a file cannot bring code.
#pragma once
#include <hdf5.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "llmc/core/dtype.h"

// Switches off error printing and plugins; every function here calls it, any number of times.
void h5_init();

// Throws Error with the call and HDF5's innermost message: Exit::Resource if the system refused a
// call, else Exit::Damaged.
[[noreturn]] void h5_fail(const char* call);

// H5_CHECK(H5Dopen2(...)) gives back the value of the call, or throws if it is negative.
template <class Value>
Value h5_checked(Value v, const char* call) {
    if (v < 0) h5_fail(call);
    return v;
}
#define H5_CHECK(call) h5_checked((call), #call)

// An open identifier. close() reports the library's verdict; the destructor, which runs only when
// something has already gone wrong, cannot.
class H5Handle {
  public:
    using Closer = herr_t (*)(hid_t);
    H5Handle() = default;
    H5Handle(hid_t id, Closer closer) : id_(id), closer_(closer) {}
    H5Handle(H5Handle&& other) noexcept
        : id_(std::exchange(other.id_, -1)), closer_(other.closer_) {}
    H5Handle& operator=(H5Handle&& other) noexcept {
        std::swap(id_, other.id_), std::swap(closer_, other.closer_);
        return *this;
    }
    ~H5Handle() {
        if (id_ >= 0) closer_(id_);
    }
    operator hid_t() const { return id_; }
    void close();

  private:
    hid_t id_ = -1;
    Closer closer_ = nullptr;
};

// The handles that this project opens; each throws on failure.
H5Handle h5_properties(hid_t property_class);
H5Handle h5_space(const std::vector<int64_t>& dims);
H5Handle h5_type(Dtype t);  // little-endian fp32; bf16 as a 16-bit float type
H5Handle h5_group_create(hid_t where, const std::string& name);
H5Handle h5_group_open(hid_t where, const std::string& name);  // the link must be a hard one

// File access: plain POSIX files, no lock of HDF5's own (OUT/.lock is ours), and closing a file
// fails while any object in it is still open.
H5Handle h5_access(H5F_libver_t low, H5F_libver_t high);

// Closes a file that failed while being written. HDF5 keeps it open for as long as its flush fails,
// so its descriptor is first pointed at /dev/null, where every write succeeds: nothing leaks, and
// nothing is written later, at exit, into a file that has been given up.
void h5_abandon(H5Handle& file);

void h5_attribute_write(hid_t object, const std::string& name, const std::vector<int64_t>& values);
// An attribute of up to 32 int64; anything else is refused.
std::vector<int64_t> h5_attribute_read(hid_t object, const std::string& name);

// The names in a group, in alphabetic order; refuses more than `limit`, and any link but hard ones.
std::vector<std::string> h5_links(hid_t group, size_t limit);

// A file that exists in memory only, for small files that are to be written by other means. bytes()
// closes it and gives the finished file.
class H5Image {
  public:
    H5Image(H5F_libver_t low, H5F_libver_t high);
    H5Image(const H5Image&) = delete;  // the library holds our address
    H5Image& operator=(const H5Image&) = delete;
    operator hid_t() const { return file_; }
    std::string bytes();

  private:
    std::string bytes_;  // before file_: closing the file fills it
    H5Handle file_;
};
