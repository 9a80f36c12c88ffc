#!/usr/bin/env bash
# data/fetch_corpus.sh [NAME [FILE]]: a text to train on; its path on stdout, the rest on stderr.
#
# NAME  tinyshakespeare   1.1 MB of plays, from GitHub
#       austen            4.0 MB, six novels by Jane Austen, from Debian's package r-cran-janeaustenr
#                         (nothing is installed, root is not needed)
#       auto              the first where there is internet, else the second (default)
# FILE  default: data/corpora/NAME.txt
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=data/fetch.sh
. "$here/fetch.sh"

shakespeare_sha=86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed
austen_sha=65b434d16a8755142bfa95ba19c5f9abd0d30cf3dffe3b6793e834f9f56dcc96

fetch_tinyshakespeare() { # FILE
    local at=https://raw.githubusercontent.com/karpathy/char-rnn path=data/tinyshakespeare/input.txt
    fetch "$1" $shakespeare_sha $at/d1d7aa34fdb3626174bce1d753e6cc6845ce7087/$path $at/master/$path
}

# The package holds each novel as an R vector of its lines; rdata_text.pl writes them out.
fetch_austen() { # FILE
    local file=$1 tool package=r-cran-janeaustenr rdb=usr/lib/R/site-library/janeaustenr/data/Rdata.rdb
    has_sha256 "$file" $austen_sha && return 0
    check_free "$file" $austen_sha || return 1
    for tool in apt-get dpkg-deb perl; do
        command -v $tool > /dev/null && continue
        say "error: $tool is not installed; the corpus austen needs apt-get, dpkg-deb and perl"
        return 1
    done
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    if ! (cd "$work" && apt-get -qq -o APT::Sandbox::User="$(id -un)" download $package) >&2; then
        say "error: cannot download the Debian package $package;" \
            "hint: apt-get update (as root) refreshes the list of packages"
        return 1
    fi
    dpkg-deb -x "$work"/$package*.deb "$work"
    perl "$here/rdata_text.pl" "$work/$rdb" > "$work/text"
    mkdir -p "$(dirname "$file")"
    cp "$work/text" "$file.part"
    keep "$file" $austen_sha "$file.part" "$package"
}

name=${1:-auto}
case $name in
    tinyshakespeare | austen)
        file=${2:-$here/corpora/$name.txt}
        "fetch_$name" "$file"
        ;;
    auto)
        file=${2:-$here/corpora/austen.txt}
        if ! has_sha256 "$file" $austen_sha; then
            file=${2:-$here/corpora/tinyshakespeare.txt}
            if ! fetch_tinyshakespeare "$file"; then
                say "no tiny Shakespeare: taking Jane Austen's novels from Debian's package"
                file=${2:-$here/corpora/austen.txt}
                fetch_austen "$file"
            fi
        fi
        ;;
    *)
        say "error: unknown corpus; found $name; expected tinyshakespeare, austen or auto"
        exit 2
        ;;
esac
echo "$file"
