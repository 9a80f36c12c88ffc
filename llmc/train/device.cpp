#include "llmc/train/device.h"

#include <omp.h>

#include "llmc/core/plural.h"
#include "llmc/ops/attention_cudnn.h"
#include "llmc/ops/cudnn_plan.h"
#include "llmc/ops/gemm.h"

// Does the command compute on a device? A plan only reckons, so it needs none.
static bool computes(Command c) {
    return c == Command::Train || c == Command::Generate || c == Command::Eval ||
           c == Command::SelftestComm;
}

// --attention cudnn: everything that can be wrong with it is said before anything is allocated. A
// plan needs the GPU too, since only the library knows how much memory its kernels want.
static void attention_setup(const Options& opt, bool gpu) {
    if (opt.attention != AttentionBy::Cudnn) return;
    CHECK(cudnn::built(), Exit::Usage,
          "--attention cudnn, but this train_gpt was built without cuDNN's headers", "", "",
          "--attention own, or `make` where cudnn_backend.h of cuDNN 9 is");
    CHECK(gpu && opt.device == Device::Cuda, Exit::Usage, "--attention cudnn needs a GPU",
          gpu ? "--device cpu" : cuda_absence(), "", "--attention own");
    CHECK(opt.dtype == Dtype::BF16, Exit::Usage, "--attention cudnn works in bf16 only",
          str("--dtype ", dtype_name(opt.dtype)), "--dtype bf16", "--attention own");
    cudnn::load();
    attention_choice = {true, opt.reduction == Reduction::Canonical};
}

// A plan reckons for a GPU that need not be here, in a build that knows what it would take.
static void check_device(const Options& opt, bool gpu) {
    const bool plans = opt.command == Command::Plan;
    if (!plans && !computes(opt.command)) return;
    CHECK(opt.device != Device::Cuda || gpu || (plans && kBuiltWithCuda), Exit::Usage,
          "--device cuda, but no GPU can be used", cuda_absence(), "",
          kBuiltWithCuda ? "--device cpu" : "--device cpu, or build with `make CUDA=1`");
    CHECK(opt.dtype != Dtype::BF16 || opt.device == Device::Cuda ||
              (opt.device == Device::Auto && gpu),
          Exit::Usage, "--dtype bf16 needs a GPU", gpu ? "--device cpu" : cuda_absence(), "",
          plans && kBuiltWithCuda ? "--dtype fp32, or --device cuda" : "--dtype fp32");
}

void device_setup(Options& opt, const World& world) {
    if (opt.threads > 0) omp_set_num_threads(opt.threads);
    const bool gpu = cuda_device_count() > 0;
    check_device(opt, gpu);
    opt.device_why = opt.device != Device::Auto ? "asked for"
                     : gpu                      ? "--device auto found it"
                                                : "--device auto: " + cuda_absence();
    if (opt.device == Device::Auto) opt.device = gpu ? Device::Cuda : Device::Cpu;
    attention_setup(opt, gpu);
    if (opt.device != Device::Cuda || !computes(opt.command)) return;

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
                   device.memory >> 20, " MiB, ", dtype_name(opt.dtype),
                   attention_choice.cudnn ? ", attention by cuDNN " + cudnn::load() : "");
    }
    return str("CPU (", opt.device_why, "), ", counted(omp_get_max_threads(), "thread"),
               ", matrix products: ", gemm_library());
}

// Dense bf16 products summed in fp32, TFLOP/s. Where NVIDIA's table states sparse numbers only,
// half of them. Sources: data sheets "NVIDIA A100" (2021), "NVIDIA H100" (2023: SXM 1979 sparse,
// PCIe 1513, NVL 1671), "NVIDIA H200" (2024: SXM 1979, NVL 1671), "NVIDIA L40S" (2023); white paper
// "NVIDIA Ada GPU architecture" (2022), appendix A. Names as the CUDA runtime has them.
double bf16_peak_flops(const std::string& device) {
    struct Peak {
        const char* name;
        double teraflops;
    };
    static constexpr Peak kPeaks[] = {
        {"NVIDIA A100-SXM4-40GB", 312},     {"NVIDIA A100-SXM4-80GB", 312},
        {"NVIDIA A100-PCIE-40GB", 312},     {"NVIDIA A100 80GB PCIe", 312},
        {"NVIDIA H100 80GB HBM3", 989.4},   {"NVIDIA H100 PCIe", 756.5},
        {"NVIDIA H100 NVL", 835.5},         {"NVIDIA H200", 989.4},
        {"NVIDIA H200 NVL", 835.5},         {"NVIDIA L40S", 362.05},
        {"NVIDIA GeForce RTX 4090", 165.2},
    };
    for (const Peak& p : kPeaks)
        if (device == p.name) return p.teraflops * 1e12;
    return 0;
}

double device_peak_flops(const Options& opt) {
    const bool known = opt.device == Device::Cuda && opt.dtype == Dtype::BF16;
    return known ? bf16_peak_flops(cuda_device().name) : 0;
}
