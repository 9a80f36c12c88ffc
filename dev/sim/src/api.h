// The simulated device, the lock around the API, and faults on request.
#pragma once
#include <mutex>
#include <string>

#include "cusim/runtime.h"

namespace cusim {

// Host threads may call the API at the same time; one of them is inside at any moment, and it is
// the one that runs kernels.
class ApiLock {
  public:
    ApiLock();
    ~ApiLock();
    ApiLock(const ApiLock&) = delete;

  private:
    std::unique_lock<std::recursive_mutex> held_;
};

const cudaDeviceProp& device_properties();

// CUSIM_FAIL_KERNEL=NAME:N breaks the device at the N-th launch of a kernel whose name contains
// NAME: from then on every call that can report an error returns it.
void count_launch(const std::string& kernel);
cudaError_t device_error();
}  // namespace cusim
