#!/usr/bin/env bash
# make builds what changed, all of it, and nothing else; it says what it found.
. scripts/test/tap.sh

object=$work/b/obj/llmc/train/schedule.o
build() { env -u MAKEFLAGS -u MFLAGS -u V "${MAKE:-make}" BUILD="$work/b" CCACHE= "$@" "$object"; }
expect "first make" 0 "this machine has" "HDF5" "CUDA" "MPI" "compile $object" -- build
expect "second make does nothing" 0 "!compile" "!this machine" -- build
touch llmc/train/schedule.h
expect "a header is a dependency" 0 "compile $object" -- build
expect "an option rebuilds" 0 "compile $object" -- build ARCH=x86-64-v2
expect "the same option does not" 0 "!compile" -- build ARCH=x86-64-v2
expect "CUDA=0 is told" 0 "no (CUDA=0)" -- build CUDA=0
# Vectors of a machine without fused multiply-add are another branch of the source.
is "old machines" make -s BUILD="$work/v2" ARCH=x86-64-v2 CUDA=0 "$work/v2/obj/llmc/ops/gelu_cpu.o"
expect "MPI=0 is told" 0 "no (MPI=0)" -- build MPI=0
mkdir -p "$work/cudnn/include"
echo '#define CUDNN_VERSION 91100' > "$work/cudnn/include/cudnn_backend.h"
expect "cuDNN elsewhere is told" 0 "its headers" -- build CUDNN_PATH="$work/cudnn"
is "and taken" grep -q "^CUDNN_CPPFLAGS.* $work/cudnn/include" "$work/b/probe.mk"
expect "no nvcc" 2 "CUDA=1 asks for it, but no nvcc" -- build CUDA=1 NVCC=no-such-nvcc
expect "no compiler" 2 "missing: no-such-g++" "install_deps" -- build CXX=no-such-g++
expect "help" 0 "make quickstart" "make test" -- "${MAKE:-make}" help
