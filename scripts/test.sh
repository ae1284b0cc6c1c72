#!/usr/bin/env bash
# Everything that must hold before a change is taken: format, house rules, lints, documentation, all tests, and against the binary
# real MQTT clients, the commands of the documentation, the console, what is under packaging/, and the instructions of a message. Goes on after a failure, so that one run tells
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

# What each step found: its name, how many passed and failed, and what it took.
readonly outcomes=$logs/outcomes
: >"$outcomes"

# Adds up "N passed; N failed" of cargo, "N failed, N passed in 1.2s" of pytest, and "N passed, N failed" of checks.
count() {
    awk -v what="$1" '
        /^test result: / || /^[= ]*[0-9]+ (passed|failed|error).* in [0-9.]+s/ || /^[0-9]+ passed, [0-9]+ failed$/ {
            for (i = 2; i <= NF; i++) if ($i ~ "^" what "[;,]?$") n += $(i - 1)
        }
        END { print n + 0 }' "$2"
}

# step NAME COMMAND...: runs it, keeps what it prints, shows that when it is over (several steps run side by side), and notes the outcome.
step() {
    local name=$1 start=$SECONDS log=$logs/$1.log status=0 good bad
    shift
    printf '=== %s begins after %d s; what it prints: %s\n' "$name" "$SECONDS" "$log"
    "$@" </dev/null >"$log" 2>&1 || status=$?
    good=$(count passed "$log")
    bad=$(($(count failed "$log") + $(count errors? "$log")))
    if [[ $status -ne 0 && $bad -eq 0 ]]; then bad=1; fi
    if [[ $status -eq 0 && $good -eq 0 && $bad -eq 0 ]]; then good=1; fi
    printf '\n=== %s: %s\n' "$name" "$*" | cat - "$log"
    note "$name" "$good" "$bad" "$((SECONDS - start)) s"
    return "$status"
}

note() {
    printf '%s %s %s %s\n' "$1" "$2" "$3" "$4" >>"$outcomes"
}

finish() {
    printf '\n=== in %d min %d s\n' $((SECONDS / 60)) $((SECONDS % 60))
    awk '{ printf "  %-10s %6s passed %6s failed   %s %s\n", $1, $2, $3, $4, $5; passed += $2; failed += $3 }
        END { printf "%d passed, %d failed\n", passed, failed; exit failed > 0 }' "$outcomes"
}

# What needs the binary and waits for it most of the time: begins as soon as that is there, while the rest is built.
with_binary() {
    export WHIMBREL_BIN=$target/$profile/whimbrel
    local name
    until [[ -x $WHIMBREL_BIN ]]; do
        if [[ -e $logs/build-ended ]]; then
            for name in console clients clients-1 book packaging net timed; do note "$name" 0 1 "not run, because the build left no binary"; done
            return
        fi
        sleep 1
    done
    step console tests/console/run || true
    step clients env WHIMBREL_WORKERS=2 tests/clients/run || true
    step clients-1 env WHIMBREL_WORKERS=1 tests/clients/run || true
    step book tests/docs/run || true
    step packaging tests/packaging/run || true
    step net scripts/test-net.sh || true
    step timed scripts/run-tests.py $profile timed || true
}

step require scripts/require.sh cc=build-essential git python3 valgrind umoci skopeo cargo:fmt cargo:clippy || { finish; exit 1; }
step format cargo fmt --all --check || true
# One of an earlier build is not the one to be tested. Cargo puts it there again when it is as it should be.
rm -f "$target/$profile/whimbrel" "$logs/build-ended"
with_binary &
# What computes leaves the machine to what waits for it.
renice -n 10 $$ >/dev/null
is_built=no
if step build cargo test --locked --workspace --profile $profile --no-run; then
    is_built=yes
fi
touch "$logs/build-ended"
step clippy cargo clippy --locked --workspace --all-targets --profile $profile -- -D warnings || true
step peers bench/responsiveness-peers/check.py || true
step tidy cargo run --quiet --locked --profile $profile --package xtask -- tidy || true
step docs env RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --document-private-items --profile $profile || true
if [[ $is_built == yes ]]; then
    step examples cargo test --locked --workspace --profile $profile --doc || true
    step untimed scripts/run-tests.py $profile untimed || true
fi
wait
# Its servers sync each record: beside others they would wait for the disk.
if [[ $is_built == yes ]]; then
    step engine scripts/test-engine.sh || true
fi
# Counted, not timed: but what it is built with takes the machine.
step instructions scripts/instructions.sh || true
if [[ $is_built == yes ]]; then
    step measured scripts/run-tests.py $profile measured || true
fi
finish
