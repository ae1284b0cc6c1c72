#!/usr/bin/env bash
# Runs every fuzz target for a while: scripts/fuzz.sh [SECONDS each, 60]. Needs a nightly toolchain and cargo-fuzz, and says so.
# What a target finds lies in fuzz/artifacts; `cargo +nightly fuzz run TARGET FILE` repeats it.
set -euo pipefail
cd "$(dirname "$0")/.."
each=${1:-60}

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "fuzzing needs a nightly toolchain; run: rustup toolchain install nightly --profile minimal" >&2
    exit 1
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "installing cargo-fuzz"
    cargo install cargo-fuzz --locked || {
        echo "cargo-fuzz could not be installed; run: cargo install cargo-fuzz --locked" >&2
        exit 1
    }
fi

mapfile -t targets < <(cargo +nightly fuzz list)
echo "${#targets[@]} targets, $each s each"
for target in "${targets[@]}"; do
    printf '\n=== %s\n' "$target"
    cargo +nightly fuzz run "$target" -- -max_total_time="$each" -rss_limit_mb=4096
done
printf '\n%d targets ran for %s s each and found nothing\n' "${#targets[@]}" "$each"
