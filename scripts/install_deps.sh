#!/usr/bin/env bash
# Installs what train_gpt needs and this machine lacks; with everything there it does nothing.
#   scripts/install_deps.sh            Debian, Ubuntu: apt, as root or with sudo; else prints a list
#   scripts/install_deps.sh --list     only prints what is missing
set -euo pipefail

needed=(g++ make pkg-config libhdf5-dev libxxhash-dev libpcre2-dev libcli11-dev nlohmann-json3-dev
    libgtest-dev)
# Faster or more, but nothing stops without them.
wanted=(libopenblas-openmp-dev libdnnl-dev libopenmpi-dev openmpi-bin ccache clang libsentencepiece-dev libutf8proc-dev
    gnuplot-nox ca-certificates curl)

if ! command -v dpkg-query > /dev/null; then
    cat << 'LIST'
This is no Debian or Ubuntu: please install by the means of this system
  a C++20 compiler with OpenMP (g++ 11 or later), make, pkg-config
  HDF5 (C library, serial), xxHash, PCRE2 (8 bit), CLI11, nlohmann-json, GoogleTest
  optional: OpenBLAS built for OpenMP and oneDNN 2 or later (to compare with), Open MPI, ccache, clang (the simulator's thread sanitizer), sentencepiece, utf8proc, gnuplot (for loss.svg), curl
LIST
    exit 0
fi

missing() {
    local package
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null)" = installed ] ||
            echo "$package"
    done
}
# Asked by package: another flavour of OpenBLAS is no replacement for the OpenMP one.
mapfile -t need < <(missing "${needed[@]}")
mapfile -t want < <(missing "${wanted[@]}")
if [ "${1:-}" = --list ]; then
    echo "needed: ${need[*]:-}"
    echo "useful: ${want[*]:-}"
    exit 0
fi
[ ${#need[@]} -gt 0 ] || [ ${#want[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo > /dev/null; then
        echo "missing: ${need[*]} ${want[*]}; run as root: apt-get install ${need[*]} ${want[*]}" >&2
        [ ${#need[@]} -eq 0 ]
        exit
    fi
    as_root=(sudo env DEBIAN_FRONTEND=noninteractive)
fi
echo "installing: ${need[*]} ${want[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
    "${as_root[@]}" apt-get -qq -o DPkg::Lock::Timeout=300 "$@" < /dev/null > "$log" 2>&1 && return
    tail -n 20 "$log" >&2
    return 1
}
apt update
if [ ${#need[@]} -gt 0 ]; then apt install -y --no-install-recommends "${need[@]}"; fi
for package in "${want[@]}"; do
    apt install -y --no-install-recommends "$package" ||
        echo "note: $package is not to be had here; going on without it"
done
