# shellcheck shell=bash
# What the scripts in this folder know of the targets: names, C compilers, emulators, Debian's names. Sourced, not run.
# Also where the tools lie, and which of two routes builds a target: see route_of.

# Rust's names of what is built, in the order of `all`.
targets_all=(
    aarch64-unknown-linux-musl
    armv7-unknown-linux-musleabihf
    x86_64-unknown-linux-musl
    aarch64-unknown-linux-gnu
    arm-unknown-linux-musleabihf
)

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Tools that setup brings and the C library that zig compiles. Kept between builds; outside of target/, so that
# `cargo clean` leaves it alone.
cross_dir=${GATEWAYD_CROSS_DIR:-$checkout/.cross}
venv=$cross_dir/venv
# Debian's compiler, beside one from rustup that comes first in PATH.
debian_bin=/usr/bin
debian_std_source=/usr/lib/rustlib/src/rust/library/std

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

is_target() {
    local target
    for target in "${targets_all[@]}"; do
        [[ $target != "$1" ]] || return 0
    done
    return 1
}

# Writes the targets that the arguments name, one a line: Rust's names, or `all`.
targets_of() {
    local word
    (($#)) || fail "which target? One of: all ${targets_all[*]}"
    for word; do
        if [[ $word == all ]]; then
            printf '%s\n' "${targets_all[@]}"
        elif is_target "$word"; then
            echo "$word"
        else
            fail "unknown target $word; there are: all ${targets_all[*]}"
        fi
    done
}

# The user-mode emulator of a target, and nothing for one that this machine runs itself.
emulator_of() {
    case $1 in
        "$(uname -m)"-*) ;;
        aarch64-unknown-linux-gnu) echo "qemu-aarch64 -L /usr/aarch64-linux-gnu" ;;
        aarch64-*) echo qemu-aarch64 ;;
        armv7-*) echo "qemu-arm -cpu cortex-a7" ;;
        # The core of the Raspberry Pi Zero and 1: an instruction of ARMv7 is refused.
        arm-*) echo "qemu-arm -cpu arm1176" ;;
        x86_64-*) echo qemu-x86_64 ;;
    esac
}

# musl on a 32-bit machine, where Rust's libc crate counts seconds in 32 bits unless it is told otherwise.
is_32_bit_musl() {
    [[ $1 == arm*-musl* ]]
}

# Debian's architecture whose package holds this target's binary.
debian_architecture_of() {
    case $1 in
        aarch64-unknown-linux-musl) echo arm64 ;;
        armv7-unknown-linux-musleabihf) echo armhf ;;
        x86_64-unknown-linux-musl) echo amd64 ;;
        *) fail "no package is made of $1" ;;
    esac
}

target_of_architecture() {
    case $1 in
        arm64) echo aarch64-unknown-linux-musl ;;
        armhf) echo armv7-unknown-linux-musleabihf ;;
        amd64) echo x86_64-unknown-linux-musl ;;
        *) fail "no package for architecture $1; there are arm64, armhf and amd64" ;;
    esac
}

has_standard_library() { # SYSROOT TARGET
    compgen -G "$1/lib/rustlib/$2/lib/libstd-*.rlib" >/dev/null
}

# How a target is built here:
#   prebuilt    the compiler in PATH has the target's standard library (`rustup target add`)
#   debian      Debian's compiler, and Debian's prebuilt standard library of that architecture
#   build-std   Debian's compiler, which builds the standard library from Debian's source first
# The C compiler and linker is zig for musl and GCC for glibc on every route. Forced with GATEWAYD_CROSS_ROUTE.
route_of() {
    local target=$1
    if [[ -n ${GATEWAYD_CROSS_ROUTE:-} ]]; then
        echo "$GATEWAYD_CROSS_ROUTE"
    elif is_32_bit_musl "$target" && [[ -x $debian_bin/rustc && -d $debian_std_source ]]; then
        # Here even where rustup has the target: only a standard library of our own knows times after January 2038.
        echo build-std
    elif command -v rustc >/dev/null && has_standard_library "$(rustc --print sysroot)" "$target"; then
        echo prebuilt
    elif has_standard_library "$cross_dir/sysroot" "$target" && [[ -x $debian_bin/rustc ]]; then
        echo debian
    elif [[ -x $debian_bin/rustc && -d $debian_std_source ]]; then
        echo build-std
    else
        fail "nothing here can build $target: run cross/setup"
    fi
}
