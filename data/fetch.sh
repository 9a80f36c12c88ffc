#!/usr/bin/env bash
# data/fetch.sh: downloading with checksums; to be sourced.
#
# fetch FILE SHA256 URL...   FILE becomes what the first good URL has; only content of that checksum
#                            ever gets the name FILE. A FILE that is right already is left alone.

say() { echo "$@" >&2; }

sha256() { sha256sum "$1" | cut -d' ' -f1; }

has_sha256() { [ -f "$1" ] && [ "$(sha256 "$1")" = "$2" ]; }

# The limits keep a machine without internet from waiting: 5 s to connect, 10 s without a byte.
download() { # URL FILE
    if command -v curl > /dev/null; then
        curl -fsSL --connect-timeout 5 --speed-limit 1 --speed-time 10 -o "$2" "$1" 2> /dev/null
    elif command -v wget > /dev/null; then
        wget -q --tries=1 --connect-timeout=5 --read-timeout=10 -O "$2" "$1"
    elif [ -x /usr/lib/apt/apt-helper ]; then # every Debian has this one
        /usr/lib/apt/apt-helper -o Acquire::https::Timeout=5 -o Acquire::Retries=0 \
            download-file "$1" "$2" > /dev/null 2>&1
    else
        say "error: neither curl nor wget is installed; hint: apt-get install curl"
        return 1
    fi
}

# "1024 bytes, sha256 01ab..., starting with '<!DOCTYPE html>'"
describe() { # FILE
    local start
    start=$(head -c 16 "$1" | tr -c '[:print:]' '.')
    echo "$(wc -c < "$1") bytes, sha256 $(sha256 "$1"), starting with '$start'"
}

# Gives a new file its name if it is the right one; otherwise says what it is and removes it.
keep() { # FILE SHA256 NEW WHERE
    if has_sha256 "$3" "$2"; then
        mv "$3" "$1"
        return 0
    fi
    say "error: $4 has something else; found $(describe "$3"); expected sha256 $2"
    rm -f "$3"
    return 1
}

# May FILE be written? Something else of that name is somebody's own.
check_free() { # FILE SHA256
    [ -e "$1" ] || return 0
    say "error: $1 is there already and is another file; found $(describe "$1");" \
        "expected sha256 $2; hint: remove it, or name another file"
    return 1
}

fetch() { # FILE SHA256 URL...
    local file=$1 sha=$2 url
    shift 2
    has_sha256 "$file" "$sha" && return 0
    check_free "$file" "$sha" || return 1
    mkdir -p "$(dirname "$file")"
    for url in "$@"; do
        if download "$url" "$file.part"; then
            keep "$file" "$sha" "$file.part" "$url" && return 0
        else
            say "cannot reach $url"
            rm -f "$file.part"
        fi
    done
    return 1
}
