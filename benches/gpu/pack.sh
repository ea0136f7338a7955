#!/usr/bin/env bash
# Builds the two programs that lease.sh runs, and copies them small enough to be taken to another machine: without symbols, compressed,
# into the folder .lease of this repository, where lease.sh finds them. plimsoll has 184 MB as it is built, and 10 MB so.
#
#   benches/gpu/pack.sh
set -eu -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

export CARGO_TERM_COLOR=never
cargo build --release -p plimsoll-cli
# Cargo says where the test is; the name has a number that differs from build to build.
said=$(cargo test --release -p conformance --test on_card --no-run 2>&1 | tee /dev/stderr)
card_test=$(sed -n 's/^ *Executable .*(\(.*on_card-[0-9a-f]*\))$/\1/p' <<<"$said")
[[ -x $card_test ]] || { echo "pack.sh: cargo has not said where the test is" >&2; exit 1; }
mkdir -p .lease
pack() {
    strip -o ".lease/$2" "$1"
    xz -f -T 0 ".lease/$2"
}
pack "${CARGO_TARGET_DIR:-target}/release/plimsoll" plimsoll
pack "$card_test" on_card
ls -l .lease
