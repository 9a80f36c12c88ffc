#include "llmc/train/device.h"

#include <omp.h>

#include "llmc/ops/gemm.h"

// Does the command compute on a device? A plan only reckons, so it needs none.
static bool computes(Command c) {
    return c == Command::Train || c == Command::Generate || c == Command::Eval;
}

// The same words for the table of a run and for errors.
static std::string no_gpu() {
    return kBuiltWithCuda ? cuda_absence() : "this train_gpt was built without CUDA";
}

void device_setup(Options& opt, const World& world) {
    if (opt.threads > 0) omp_set_num_threads(opt.threads);
    const bool gpu = cuda_device_count() > 0;
    if (computes(opt.command)) {
        CHECK(opt.device != Device::Cuda || gpu, Exit::Usage,
              "--device cuda, but no GPU can be used", no_gpu(), "", "--device cpu");
        CHECK(opt.dtype != Dtype::BF16 || (gpu && opt.device != Device::Cpu), Exit::Usage,
              "--dtype bf16 needs a GPU", gpu ? "--device cpu" : no_gpu(), "", "--dtype fp32");
    }
    opt.device_why = opt.device != Device::Auto ? "asked for"
                     : gpu                      ? "--device auto found it"
                                                : "--device auto: " + no_gpu();
    if (opt.device == Device::Auto) opt.device = gpu ? Device::Cuda : Device::Cpu;
    if (opt.device != Device::Cuda || !computes(opt.command)) return;

    CHECK(world.size == 1, Exit::Usage, "ranks on GPUs talk through NCCL, which this version lacks",
          str(world.size, " ranks"), "one", "--device cpu, or one process");
    cuda_device_use(world.local_rank % cuda_device_count());
    const CudaDevice device = cuda_device();
    CHECK(opt.dtype != Dtype::BF16 || device.arch >= 80, Exit::Usage,
          "--dtype bf16 needs a GPU of compute capability 8.0 or later (A100, RTX 30 or later)",
          str(device.name, ", ", device.arch / 10, ".", device.arch % 10), "", "--dtype fp32");
}

std::string device_text(const Options& opt) {
    if (opt.device == Device::Cuda) {
        const CudaDevice device = cuda_device();
        return str(device.name, " (", opt.device_why, "), sm_", device.arch, ", ",
                   device.memory >> 20, " MiB, ", dtype_name(opt.dtype));
    }
    return str("CPU (", opt.device_why, "), ", omp_get_max_threads(), " threads, ", gemm_library());
}
