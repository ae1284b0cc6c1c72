#!/usr/bin/env bash
# Counts the instructions of a message that needs nothing special, which no other program on the machine can disturb:
# scripts/callgrind-plain-path.sh [FOLDER]. Needs valgrind. FOLDER: has `plain_path` and `pass_on` built before, to compare with.
#
# Each figure is the difference of two runs which differ only in the number of rounds, divided by the messages between them.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/require.sh cc=build-essential valgrind bc
cargo build --locked --release --package whimbrel-mqtt --example plain_path --example pass_on
ours=${CARGO_TARGET_DIR:-target}/release/examples
theirs=${1:-}
rounds=2000

# instructions VALGRIND_OPTION PROGRAM ARGUMENTS...: of one run.
instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 | sed -n 's/.*Collected : //p'
}

# deliver FOLDER PUBLISHERS SUBSCRIBERS QOS VERSION: per delivery of one broker.
deliver() {
    local one two
    one=$(instructions --collect-atstart=yes "$1/plain_path" $rounds "${@:2}")
    two=$(instructions --collect-atstart=yes "$1/plain_path" $((2 * rounds)) "${@:2}")
    echo $(((two - one) / (rounds * $2 * $3)))
}

# hop FOLDER NODE: per event at one of the three brokers that it goes through.
hop() {
    local one two
    one=$(instructions --toggle-collect=pass_on::counted "$1/pass_on" $rounds "$2")
    two=$(instructions --toggle-collect=pass_on::counted "$1/pass_on" $((2 * rounds)) "$2")
    echo $(((two - one) / rounds))
}

# row NAME FUNCTION ARGUMENTS...: what the function counts now, and before.
row() {
    local now before=- ratio=-
    now=$("$2" "$ours" "${@:3}")
    if [[ -n $theirs ]]; then
        before=$("$2" "$theirs" "${@:3}") ratio=$(bc -l <<<"$now / $before")
    fi
    printf '%-28s %10s %10s %8.6s\n' "$1" "$now" "$before" "$ratio"
}

printf 'instructions per delivery\n%-28s %10s %10s %8s\n' '' now before ratio
for qos in 0 1; do
    for version in 4 5; do
        for shape in '1 1' '1 100' '10 10'; do
            # shellcheck disable=SC2086
            row "QoS $qos, MQTT $version, ${shape/ / to }" deliver $shape $qos $version
        done
    done
done
printf '\ninstructions per event, QoS 0, 1 to 1 over three brokers\n'
row 'publish, send to a link' hop 0
row 'receive, pass on' hop 1
row 'receive, deliver' hop 2
