// llmc/train/device.h: which device a command runs on, and why.
#pragma once
#include <string>

#include "llmc/core/backend.h"
#include "llmc/core/check.h"
#include "llmc/core/dtype.h"
#include "llmc/parallel/world.h"
#include "llmc/train/options.h"

// Decides --device auto, checks --device and --dtype against build and machine, applies --threads.
// On return opt.device is Cpu or Cuda.
void device_setup(Options& opt, const World& world);

// For the table of what will run: the device, why it was chosen, and what it computes with.
std::string device_text(const Options& opt);

// The most FLOP/s that the tensor cores of the device do in --dtype bf16, as its maker states them,
// by its name; 0 where it is not known: other devices, slices of one (MIG), fp32, CPUs.
double device_peak_flops(const Options& opt);
double bf16_peak_flops(const std::string& device);  // of a CUDA device's name

// Calls what.template operator()<Elem, Stream>() for the chosen device and --dtype.
template <class What>
Exit on_device([[maybe_unused]] const Options& opt, What what) {
    FOR_CUDA(if (opt.device == Device::Cuda) return opt.dtype == Dtype::BF16
                 ? what.template operator()<bf16, CudaStream>()
                 : what.template operator()<float, CudaStream>();)
    return what.template operator()<float, CpuStream>();
}
