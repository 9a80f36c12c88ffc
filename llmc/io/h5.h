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

// Switches off error printing, in this thread, and plugins; h5_properties and h5_type, one of which
// comes before anything that can fail, call it.
void h5_init();

// Throws Error(Exit::Damaged) with the call and HDF5's innermost message.
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

void h5_attribute_write(hid_t object, const std::string& name, const std::vector<int64_t>& values);
// An attribute of up to 32 int64; anything else is refused.
std::vector<int64_t> h5_attribute_read(hid_t object, const std::string& name);

// The names in a group, in alphabetic order; refuses more than `limit`, and any link but hard ones.
std::vector<std::string> h5_links(hid_t group, size_t limit);
