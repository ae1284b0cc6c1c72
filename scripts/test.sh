#!/usr/bin/env bash
# Everything that must hold before a change is taken: format, house rules, lints, documentation, all tests, and against the binary
# real MQTT clients, the commands of the documentation, the console, and what is under packaging/. Goes on after a failure, so that one run tells
# all; then prints what each step took and found, and as its last line how much passed and failed in all. A check without tests of
# its own counts as one.
set -euo pipefail
cd "$(dirname "$0")/.."

# What everything is built with; one profile, so that nothing is built twice.
readonly profile=quick
readonly target=${CARGO_TARGET_DIR:-$PWD/target}
readonly logs=$target/test-logs
mkdir -p "$logs"
# Nothing here is rebuilt in small steps, and incremental files cost time and space.
export CARGO_INCREMENTAL=0
export RUST_BACKTRACE=${RUST_BACKTRACE:-1}

passed=0
failed=0
summary=()

# Adds up "N passed; N failed" of cargo, "N failed, N passed in 1.2s" of pytest, and "N passed, N failed" of checks.
count() {
    awk -v what="$1" '
        /^test result: / || /^[= ]*[0-9]+ (passed|failed|error).* in [0-9.]+s/ || /^[0-9]+ passed, [0-9]+ failed$/ {
            for (i = 2; i <= NF; i++) if ($i ~ "^" what "[;,]?$") n += $(i - 1)
        }
        END { print n + 0 }' "$2"
}

# step NAME COMMAND...: runs it, shows and keeps what it prints, and notes the outcome.
step() {
    local name=$1 start=$SECONDS log=$logs/$1.log status=0 good bad
    shift
    printf '\n=== %s: %s\n' "$name" "$*"
    "$@" </dev/null 2>&1 | tee "$log" || status=$?
    good=$(count passed "$log")
    bad=$(($(count failed "$log") + $(count errors? "$log")))
    if [[ $status -ne 0 && $bad -eq 0 ]]; then bad=1; fi
    if [[ $status -eq 0 && $good -eq 0 && $bad -eq 0 ]]; then good=1; fi
    note "$name" "$good" "$bad" "$((SECONDS - start)) s"
    return "$status"
}

note() {
    passed=$((passed + $2))
    failed=$((failed + $3))
    summary+=("$(printf '  %-10s %6s passed %6s failed   %s' "$1" "$2" "$3" "$4")")
}

finish() {
    printf '\n=== in %d min %d s\n' $((SECONDS / 60)) $((SECONDS % 60))
    printf '%s\n' "${summary[@]}"
    printf '%d passed, %d failed\n' "$passed" "$failed"
    [[ $failed -eq 0 ]]
}

step require scripts/require.sh cc=build-essential git python3 cargo:fmt cargo:clippy || { finish; exit 1; }
step format cargo fmt --all --check || true
step tidy cargo run --quiet --locked --profile $profile --package xtask -- tidy || true
step clippy cargo clippy --locked --workspace --all-targets --profile $profile -- -D warnings || true
step docs env RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --document-private-items --profile $profile || true
if step build cargo test --locked --workspace --profile $profile --no-run; then
    step tests cargo test --locked --workspace --profile $profile --no-fail-fast || true
    step clients env WHIMBREL_BIN="$target/$profile/whimbrel" tests/clients/run || true
    step book env WHIMBREL_BIN="$target/$profile/whimbrel" tests/docs/run || true
    step console env WHIMBREL_BIN="$target/$profile/whimbrel" tests/console/run || true
    step packaging env WHIMBREL_BIN="$target/$profile/whimbrel" tests/packaging/run || true
    step net scripts/test-net.sh || true
else
    note tests 0 1 "not run, because the build failed"
    note clients 0 1 "not run, because the build failed"
    note book 0 1 "not run, because the build failed"
    note console 0 1 "not run, because the build failed"
    note packaging 0 1 "not run, because the build failed"
    note net 0 1 "not run, because the build failed"
fi
finish
