// llmc/train/version.cpp: the facts of this build, for --version and for bug reports.
#include "llmc/train/version.h"

#include <H5public.h>

#include "build_facts.h"  // written by the Makefile: LLMC_GIT, LLMC_FLAGS, LLMC_MPI_FOUND
#include "llmc/core/backend.h"
#include "llmc/core/check.h"
#include "llmc/ops/cudnn_plan.h"
#include "llmc/ops/gemm.h"

// A machine without the BLAS that TRAIN_GPT_BLAS asks for must still be able to say so.
static std::string blas_text() {
    try {
        return gemm_library();
    } catch (const Error& e) {
        return e.what();
    }
}

std::string version_text() {
    unsigned hdf5[3] = {};
    H5get_libversion(&hdf5[0], &hdf5[1], &hdf5[2]);
    // clang-format off
    return str("train_gpt ", LLMC_GIT, "\n",
               "compiler  g++ ", __VERSION__, "\n",
               "flags     ", LLMC_FLAGS, "\n",
               "CUDA      ", kBuiltWithCuda ? "yes" : "no", "\n",
               "cuDNN     ", cudnn::built() ? "loaded by --attention cudnn" : "no", "\n",
               "MPI       ", LLMC_MPI_FOUND, "\n",
               "BLAS      ", blas_text(), "\n",
               "HDF5      ", hdf5[0], ".", hdf5[1], ".", hdf5[2], "\n");
    // clang-format on
}
