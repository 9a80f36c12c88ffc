#!/usr/bin/env bash
# Finds what this machine can build with, by compiling small programs, and writes it for make.
#   probe.sh BUILD_DIR         reads CXX, NVCC, CUDA, MPI, CUDNN, CUDNN_PATH, GPU_ARCH from the environment
# The answers stay in BUILD_DIR/probe.mk until one of the questions changes or a needed part was
# missing; `make clean` asks again.
set -u
build=$1
CXX=${CXX:-g++} NVCC=${NVCC:-nvcc} CUDA=${CUDA:-auto} MPI=${MPI:-auto} CUDNN=${CUDNN:-auto} GPU_ARCH=${GPU_ARCH:-} CUDNN_PATH=${CUDNN_PATH:-}
key="# $CXX $NVCC CUDA=$CUDA MPI=$MPI CUDNN=$CUDNN $CUDNN_PATH GPU_ARCH=$GPU_ARCH $(cksum < "$0")"
if [ "$(head -n 1 "$build/probe.mk" 2>/dev/null)" = "$key" ]; then exit 0; fi

mkdir -p "$build"
tmp=$(mktemp -d "$build/probe.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

say() { printf '  %-8s %s\n' "$1" "$2"; }
# builds FLAGS... : does the program on stdin compile and link?
builds() { cat > "$tmp/p.cpp"; "$CXX" -std=c++20 "$tmp/p.cpp" -o "$tmp/p" "$@" > "$tmp/log" 2>&1; }
missing=()
cppflags="" ldlibs=""

# needs NAME DEBIAN_PACKAGE INCLUDE CODE CANDIDATE...: the first set of flags that works is taken.
needs() {
    local name=$1 package=$2 include=$3 code=$4 flags program; shift 4
    program=$(printf '#include <%s>\nint main() { %s; }' "$include" "$code")
    # Headers alone need no trial; compiling these two would take seconds.
    [ -n "$code" ] || program=$(printf '#if !__has_include(<%s>)\n#error\n#endif\nint main() {}' "$include")
    for flags in "$@"; do
        # shellcheck disable=SC2086  # flags are words
        if printf '%s\n' "$program" | builds $flags; then
            local word
            for word in $flags; do
                case $word in -I* | -D*) cppflags+=" $word" ;; *) ldlibs+=" $word" ;; esac
            done
            return 0
        fi
    done
    say "$name" "missing (Debian package $package)"
    missing+=("$package")
    return 1
}
flags_of() { pkg-config --cflags --libs "$@" 2>/dev/null | tr '\n' ' '; }

echo "this machine has"
if ! echo 'int main() {}' | builds; then
    say compiler "missing: $CXX (Debian package g++)"
    echo "  -> scripts/install_deps.sh installs what is missing"
    exit 1
fi
echo '#include <concepts>
template <std::integral T> T twice(T x) { return 2 * x; }
int main() { return twice(0); }' | builds || { say compiler "$CXX is too old: C++20 is needed (g++ 11 or later)"; exit 1; }
say compiler "$("$CXX" --version | head -n 1)"
# shellcheck disable=SC2086  # flags are words
# "pkg-config hdf5" may mean the MPI flavour: the serial one is asked for by name first.
needs HDF5 libhdf5-dev hdf5.h 'H5open()' "$(flags_of hdf5-serial)" "$(flags_of hdf5)" -lhdf5 &&
    say HDF5 "$(printf '#include <hdf5.h>\nH5_VERS_INFO\n' |
        "$CXX" $cppflags -E -P - 2>/dev/null | tail -n 1 | tr -d '"')"
needs xxhash libxxhash-dev xxhash.h 'XXH3_128bits("", 0)' "$(flags_of libxxhash)" -lxxhash
needs PCRE2 libpcre2-dev pcre2.h 'pcre2_code_free_8(nullptr)' \
    "-DPCRE2_CODE_UNIT_WIDTH=8 $(flags_of libpcre2-8)" "-DPCRE2_CODE_UNIT_WIDTH=8 -lpcre2-8"
cppflags=${cppflags// -DPCRE2_CODE_UNIT_WIDTH=8/}  # the source that uses it says so itself
needs CLI11 libcli11-dev CLI/CLI.hpp "" ""
needs json nlohmann-json3-dev nlohmann/json.hpp "" ""

# ---- sentencepiece: for LLaMA's tokenizers, if it is there
sentencepiece="$(flags_of sentencepiece) -lsentencepiece"
# shellcheck disable=SC2086
if printf '#include <sentencepiece_processor.h>\nint main() { sentencepiece::SentencePieceProcessor p; }' |
    builds $sentencepiece; then
    cppflags+=" -DLLMC_SENTENCEPIECE" ldlibs+=" -lsentencepiece"
    say tokens "sentencepiece"
else
    say tokens "no sentencepiece (Debian package libsentencepiece-dev): LLaMA 2's tokenizer.model is not read"
fi

# ---- MPI: one rank needs none
have_mpi=0 mpi_found=no
if [ "$MPI" != 0 ]; then
    mpi_why="none that compiles"
    for flags in "$(flags_of ompi)" "$(flags_of mpich)" \
        "$(mpicc -showme:compile 2>/dev/null) $(mpicc -showme:link 2>/dev/null)"; do
        [ -n "${flags// /}" ] || continue
        flags="-DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX $flags"  # the C interface is all we use
        # shellcheck disable=SC2086
        if printf '#include <mpi.h>\nint main() { return MPI_Finalize(); }\n' | builds $flags; then
            have_mpi=1
            mpi_found=$(printf '#include <mpi.h>\n#ifdef OMPI_MAJOR_VERSION\nOpen MPI OMPI_MAJOR_VERSION.OMPI_MINOR_VERSION.OMPI_RELEASE_VERSION\n#else\nMPI MPI_VERSION.MPI_SUBVERSION\n#endif\n' |
                "$CXX" $flags -E -P - 2>/dev/null | tail -n 1 | sed 's/ *\. */./g')
            cppflags+=" -DLLMC_MPI=1"
            for word in $flags; do
                case $word in -I* | -D*) cppflags+=" $word" ;; *) ldlibs+=" $word" ;; esac
            done
            break
        fi
    done
    if [ $have_mpi = 1 ]; then say MPI "$mpi_found"; else say MPI "no ($mpi_why): a trainer for one rank"; fi
    if [ "$MPI" = 1 ] && [ $have_mpi = 0 ]; then
        say "" "MPI=1 asks for it (Debian package libopenmpi-dev)"
        missing+=(libopenmpi-dev)
    fi
else
    say MPI "no (MPI=0)"
fi

# ---- CUDA: nvcc must work; auto also wants a GPU that a CUDA program can see
have_cuda=0 gencode="" cuda_libs=""
if [ "$CUDA" != 0 ]; then
    cat > "$tmp/p.cu" <<'CU'
#include <cstdio>
int main() {
    int n = 0;
    cudaDeviceProp p;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0 || cudaGetDeviceProperties(&p, 0)) return 1;
    std::printf("%d%d %s\n", p.major, p.minor, p.name);
}
CU
    if ! command -v "$NVCC" > /dev/null; then
        cuda_why="no nvcc"
    elif ! "$NVCC" -ccbin "$CXX" -o "$tmp/p" "$tmp/p.cu" > "$tmp/log" 2>&1; then
        cuda_why="nvcc cannot compile a small program: $(grep -m 1 -i error "$tmp/log")"
    elif gpu=$("$tmp/p"); then
        have_cuda=1 cuda_why="${gpu#* }, sm_${gpu%% *}"
        GPU_ARCH=${GPU_ARCH:-${gpu%% *}}
    else
        cuda_why="nvcc is here, but no GPU"
        [ "$CUDA" = 1 ] && have_cuda=1
    fi
    if [ $have_cuda = 1 ]; then
        for arch in ${GPU_ARCH:-80 89 90}; do
            arch=${arch#sm_}
            gencode+=" -gencode arch=compute_$arch,code=[sm_$arch,compute_$arch]"
        done
        home=$(dirname "$(dirname "$(readlink -f "$(command -v "$NVCC")")")")
        cppflags+=" -I$home/include"
        cuda_libs=" -L$home/lib64 -lcudart_static -lpthread -lrt"
        say CUDA "yes ($cuda_why), for sm_${GPU_ARCH:-80 89 90}"
    elif [ "$CUDA" = 1 ]; then
        say CUDA "CUDA=1 asks for it, but $cuda_why"
        exit 1
    else
        say CUDA "no ($cuda_why): the CPU trainer; CUDA=1 builds for GPUs all the same"
    fi
else
    say CUDA "no (CUDA=0)"
fi

# ---- cuDNN: its headers alone, for --attention cudnn; they include CUDA's
cudnn_cppflags=""
if [ "$CUDNN" != 0 ]; then
    for folder in "$CUDNN_PATH/include" "${home:-/usr/local/cuda}/include" /usr/include; do
        [ -e "$folder/cudnn_backend.h" ] || continue
        flags="-isystem $folder"
        [ -e "$folder/cuda_runtime.h" ] || flags+=" -isystem ${home:-/usr/local/cuda}/include"
        [ "$folder" = /usr/include ] && flags=${flags#-isystem /usr/include}
        # shellcheck disable=SC2086
        if printf '#include <cudnn_backend.h>\nstatic_assert(CUDNN_VERSION >= 91100);\nint main() {}\n' |
            builds $flags; then
            cudnn_cppflags="-DLLMC_CUDNN $flags"
            break
        fi
    done
    if [ -n "$cudnn_cppflags" ]; then say cuDNN "its headers: --attention cudnn can load it"
    else say cuDNN "no headers of 9.11 or later: no --attention cudnn"; fi
fi

if [ ${#missing[@]} -gt 0 ]; then
    echo "  -> scripts/install_deps.sh installs what is missing: ${missing[*]}"
    exit 1
fi
cat > "$tmp/probe.mk" <<MK
$key
PROBE_CPPFLAGS :=$cppflags
PROBE_LDLIBS :=$ldlibs$cuda_libs
HAVE_MPI := $have_mpi
MPI_FOUND := $mpi_found
HAVE_CUDA := $have_cuda
CUDNN_CPPFLAGS := $cudnn_cppflags
NVCC_GENCODE :=$gencode
MK
mv "$tmp/probe.mk" "$build/probe.mk"
