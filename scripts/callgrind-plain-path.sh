#!/usr/bin/env bash
# Counts the instructions of a message that needs nothing special, which no other program on the machine can disturb:
# scripts/callgrind-plain-path.sh [PROGRAM]. Needs valgrind. PROGRAM: a `plain_path` built before, to compare with.
#
# Each figure is the difference of two runs which differ only in the number of rounds, divided by the messages delivered between them.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/require.sh cc=build-essential valgrind bc
cargo build --locked --release --package whimbrel-mqtt --example plain_path
ours=${CARGO_TARGET_DIR:-target}/release/examples/plain_path

# instructions PROGRAM ARGUMENTS...: of one run.
instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 | sed -n 's/.*Collected : //p'
}

# each PROGRAM PUBLISHERS SUBSCRIBERS QOS VERSION: instructions per delivery.
each() {
    local rounds=2000 one two
    one=$(instructions "$1" $rounds "${@:2}")
    two=$(instructions "$1" $((2 * rounds)) "${@:2}")
    echo $(((two - one) / (rounds * $2 * $3)))
}

printf 'instructions per delivery\n%-28s %10s %10s %8s\n' '' now before ratio
for qos in 0 1; do
    for version in 4 5; do
        for shape in '1 1' '1 100' '10 10'; do
            # shellcheck disable=SC2086
            now=$(each "$ours" $shape $qos $version) before=- ratio=-
            if [[ $# -gt 0 ]]; then
                # shellcheck disable=SC2086
                before=$(each "$1" $shape $qos $version) ratio=$(bc -l <<<"$now / $before")
            fi
            printf 'QoS %d, MQTT %d, %-12s %10s %10s %8.6s\n' $qos $version "${shape/ / to }" "$now" "$before" "$ratio"
        done
    done
done
