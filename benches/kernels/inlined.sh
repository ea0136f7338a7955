#!/usr/bin/env bash
# Lists vector intrinsics that kernels of a binary call as functions, and fails if there are any: benches/kernels/inlined.sh [BINARY]
#
# An intrinsic is one instruction only where it is inlined into a function compiled for its instruction set. A closure in a kernel that is
# not `#[inline(always)]` may become a function of its own, and each of its operations then a call through memory.
set -euo pipefail
binary=${1:-target/release/plimsoll}
found=$(nm -C "$binary" | sed -n 's/.* [tT] \(core::core_arch::.*::_mm\(256\|512\)_.*\)/\1/p' | sort -u)
[ -z "$found" ] || { echo "$found"; exit 1; }
