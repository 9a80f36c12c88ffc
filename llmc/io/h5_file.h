// llmc/io/h5_file.h: an HDF5 file whose bytes pass through our hands.
//
// HDF5 does its input and output through drivers; this one works on a descriptor that we opened.
//  - A failed write is remembered and HDF5 is told that all is well; close() throws it. HDF5 1.10.8
//    does not survive a failed write: H5Fclose then leaves an identifier to freed memory, and any
//    later use of it, also the library's own at exit, is a crash.
//  - HDF5 opens nothing by name, so nothing but the file that was checked can be read.
//  - HDF5 as distributions build it must not be called by two threads at once. While one thread has
//    a file open, others wait for it; every use of HDF5 lies between opening and closing one.
//  - Interrupted and partial calls are continued, and errors keep their reason.
// What HDF5 writes about the data (not the data itself) is kept in memory as well and read from
// there, so that HDF5 is consistent with itself even after a failed write.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "llmc/core/check.h"
#include "llmc/io/h5.h"

struct H5Store;  // the bytes, and the first error

class H5File {
  public:
    // A new file in fd, which is open for reading and writing and empty; or (-1) in memory, for its
    // size() or image().
    static H5File create(int fd, const std::string& path, H5F_libver_t version);
    // The file in fd, for reading.
    static H5File open(int fd, const std::string& path);
    H5File(H5File&&) noexcept;
    ~H5File();

    operator hid_t() const { return file_; }
    // Closes it, and throws the first error of any write.
    void close();
    // After close(): the file's size, and its bytes.
    int64_t size() const;
    std::string image() const;
    // Throws the system's error if there was one: the reason behind an HDF5 call that failed.
    void check_reads() const;

  private:
    using Lock = std::unique_lock<std::recursive_mutex>;
    H5File(Lock lock, std::unique_ptr<H5Store> store, H5Handle file);
    Lock lock_;                       // given up last
    std::unique_ptr<H5Store> store_;  // before file_, whose closing uses it
    H5Handle file_;
};
