#include "llmc/io/h5_file.h"

#include <unistd.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "llmc/io/files.h"

struct H5Store {
    int fd = -1;
    std::string path;  // for messages
    bool writing = false;
    bool given_up = false;  // nothing more is to reach the descriptor
    int64_t size = 0;       // of the file
    std::optional<Error> error;

    static constexpr int64_t PAGE = 4096;
    std::map<int64_t, std::array<char, PAGE>> pages;  // of what HDF5 may ask for again

    // What HDF5 says about the data is read from memory; the data itself from where it went.
    bool in_pages(H5FD_mem_t type) const { return writing && (type != H5FD_MEM_DRAW || fd < 0); }
    void copy_pages(int64_t at, size_t n, char* out, const char* in);
    bool read(H5FD_mem_t type, int64_t at, size_t n, char* to);
    void write(H5FD_mem_t type, int64_t at, size_t n, const char* from);
    // Runs an operation on the descriptor; its error is remembered if it is the first.
    template <class Operation>
    bool attempt(Operation operation) {
        try {
            operation();
            return true;
        } catch (const Error& e) {
            if (!error) error = e;
        } catch (const std::exception& e) {
            if (!error) error = Error(Exit::Resource, str(path, ": ", e.what()));
        }
        return false;
    }
};

// Copies n bytes at `at` from the pages to `out`, or from `in` into the pages.
void H5Store::copy_pages(int64_t at, size_t n, char* out, const char* in) {
    for (size_t done = 0; done < n;) {
        const int64_t page = (at + int64_t(done)) / PAGE, inside = (at + int64_t(done)) % PAGE;
        const size_t part = std::min(n - done, size_t(PAGE - inside));
        char* place = pages[page].data() + inside;
        if (in)
            std::memcpy(place, in + done, part);
        else
            std::memcpy(out + done, place, part);
        done += part;
    }
}

bool H5Store::read(H5FD_mem_t type, int64_t at, size_t n, char* to) {
    if (in_pages(type)) return attempt([&] { copy_pages(at, n, to, nullptr); });
    return attempt([&] { read_exactly(fd, to, n, at, path); });
}

void H5Store::write(H5FD_mem_t type, int64_t at, size_t n, const char* from) {
    if (given_up) return;
    size = std::max(size, at + int64_t(n));
    if (in_pages(type)) attempt([&] { copy_pages(at, n, nullptr, from); });
    if (fd >= 0 && !error) attempt([&] { write_exactly(fd, from, n, at, path); });
}

// ---- the driver

namespace {
struct Driver {
    H5FD_t common;  // HDF5's own part, first
    H5Store* store;
    haddr_t allocated;
};
H5Store* store_of(const H5FD_t* file) {
    return reinterpret_cast<const Driver*>(file)->store;
}

H5FD_t* driver_open(const char*, unsigned, hid_t access, haddr_t) {
    const void* info = H5Pget_driver_info(access);
    if (!info) return nullptr;
    H5Store* store = *static_cast<H5Store* const*>(info);
    return reinterpret_cast<H5FD_t*>(new Driver{{}, store, 0});
}
herr_t driver_close(H5FD_t* file) {
    delete reinterpret_cast<Driver*>(file);
    return 0;
}
int driver_compare(const H5FD_t* a, const H5FD_t* b) {
    return store_of(a) < store_of(b) ? -1 : store_of(a) > store_of(b);
}
herr_t driver_query(const H5FD_t*, unsigned long* flags) {
    // As HDF5's own POSIX driver, but without a sieve: raw data goes to us from where it lies.
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
             H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
}
haddr_t driver_allocated(const H5FD_t* file, H5FD_mem_t) {
    return reinterpret_cast<const Driver*>(file)->allocated;
}
herr_t driver_allocate(H5FD_t* file, H5FD_mem_t, haddr_t end) {
    reinterpret_cast<Driver*>(file)->allocated = end;
    return 0;
}
haddr_t driver_size(const H5FD_t* file, H5FD_mem_t) {
    return haddr_t(store_of(file)->size);
}
herr_t driver_read(H5FD_t* file, H5FD_mem_t type, hid_t, haddr_t at, size_t n, void* to) {
    return store_of(file)->read(type, int64_t(at), n, static_cast<char*>(to)) ? 0 : -1;
}
herr_t driver_write(H5FD_t* file, H5FD_mem_t type, hid_t, haddr_t at, size_t n, const void* from) {
    store_of(file)->write(type, int64_t(at), n, static_cast<const char*>(from));
    return 0;
}
herr_t driver_truncate(H5FD_t* file, hid_t, hbool_t) {
    H5Store* s = store_of(file);
    const int64_t end = int64_t(reinterpret_cast<Driver*>(file)->allocated);
    if (!s->writing || s->given_up || s->size == end) return 0;
    s->size = end;
    if (s->fd >= 0 && !s->error) s->attempt([&] { file_resize(s->fd, end, s->path); });
    return 0;
}

hid_t driver_register() {
    H5FD_class_t c = {};
#if H5_VERSION_GE(1, 13, 0)
    c.version = H5FD_CLASS_VERSION, c.value = 511;  // 256 to 511 are for tests and private use
#endif
    c.name = "store", c.maxaddr = haddr_t(INT64_MAX), c.fc_degree = H5F_CLOSE_SEMI;
    c.fapl_size = sizeof(H5Store*);
    c.open = driver_open, c.close = driver_close, c.cmp = driver_compare, c.query = driver_query;
    c.get_eoa = driver_allocated, c.set_eoa = driver_allocate, c.get_eof = driver_size;
    c.read = driver_read, c.write = driver_write, c.truncate = driver_truncate;
    const H5FD_mem_t kinds[] = H5FD_FLMAP_DICHOTOMY;
    std::copy(std::begin(kinds), std::end(kinds), c.fl_map);
    return H5_CHECK(H5FDregister(&c));
}

H5Handle access_through(H5Store* store, H5F_libver_t low, H5F_libver_t high) {
    H5Handle access = h5_properties(H5P_FILE_ACCESS);
    static const hid_t driver = driver_register();
    H5_CHECK(H5Pset_driver(access, driver, &store));
    H5_CHECK(H5Pset_libver_bounds(access, low, high));
    // Closing fails while an object in the file is still open.
    H5_CHECK(H5Pset_fclose_degree(access, H5F_CLOSE_SEMI));
    return access;
}
}  // namespace

// ---- the file

static std::recursive_mutex h5_mutex;

H5File::H5File(Lock lock, std::unique_ptr<H5Store> store, H5Handle file)
    : lock_(std::move(lock)), store_(std::move(store)), file_(std::move(file)) {}
H5File::H5File(H5File&&) noexcept = default;
H5File::~H5File() {
    if (store_) store_->given_up = true;
}

H5File H5File::create(int fd, const std::string& path, H5F_libver_t version) {
    Lock lock(h5_mutex);
    auto store = std::make_unique<H5Store>();
    store->fd = fd, store->path = path, store->writing = true;
    H5Handle access = access_through(store.get(), version, version);
    H5Handle create = h5_properties(H5P_FILE_CREATE);
    H5_CHECK(H5Pset_obj_track_times(create, 0));  // equal states make equal files
    H5Handle file(H5_CHECK(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, create, access)), H5Fclose);
    return {std::move(lock), std::move(store), std::move(file)};
}

H5File H5File::open(int fd, const std::string& path) {
    Lock lock(h5_mutex);
    auto store = std::make_unique<H5Store>();
    store->fd = fd, store->path = path, store->size = file_size(fd, path);
    H5Handle access = access_through(store.get(), H5F_LIBVER_V18, H5F_LIBVER_V110);
    try {
        H5Handle file(H5_CHECK(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access)), H5Fclose);
        return {std::move(lock), std::move(store), std::move(file)};
    } catch (const Error& e) {
        if (store->error) throw *store->error;
        fail(e.code, str(path, ": ", e.what()));
    }
}

void H5File::close() {
    file_.close();
    if (store_->error) throw *store_->error;
}

int64_t H5File::size() const {
    return store_->size;
}

std::string H5File::image() const {
    std::string bytes(size_t(store_->size), '\0');
    store_->copy_pages(0, bytes.size(), bytes.data(), nullptr);
    return bytes;
}

void H5File::check_reads() const {
    if (store_->error) throw *store_->error;
}
