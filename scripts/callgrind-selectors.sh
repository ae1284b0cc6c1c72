#!/usr/bin/env bash
# Counts the instructions of matching, which no other program on the machine can disturb:
# scripts/callgrind-selectors.sh [SELECTORS, 10000]. Needs valgrind.
#
# Each figure is the difference of two runs which differ only in the number of rounds, divided by the rounds between them: the set-up cancels out.
set -euo pipefail
cd "$(dirname "$0")/.."
count=${1:-10000}

scripts/require.sh cc=build-essential valgrind bc
# Cargo says where it put the program.
report=$(cargo bench --locked --package whimbrel-selector --bench report --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\)).*/\1/p')

# instructions ARGUMENTS...: of one run.
instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$report" "$@" 2>&1 | sed -n 's/.*Collected : //p'
}

# each ROUNDS ARGUMENTS...: instructions per round.
each() {
    local rounds=$1 one two
    shift
    one=$(instructions --once "$rounds" "$@")
    two=$(instructions --once $((2 * rounds)) "$@")
    echo $(((two - one) / rounds))
}

printf '%d selectors, 0.1 %% of them match: instructions per event, and per selector removed and another generated, parsed and added\n' "$count"
printf '%-13s %-7s %12s %14s %8s %12s\n' mix values index 'one by one' ratio replaced
for mix in equality ranges prefix prefix-range logic fence; do
    for values in uniform zipf; do
        cell=(--mix "$mix" --values "$values" --fields fixed --count "$count" --matching 0.1)
        share=$("$report" --section share "${cell[@]}")
        cell+=(--share "$share" --events 100)
        index=$(each 100 --with index "${cell[@]}")
        scan=$(each 20 --with scan "${cell[@]}")
        add=$(each 500 --with add "${cell[@]}")
        printf '%-13s %-7s %12d %14d %8.1f %12d\n' "$mix" "$values" "$index" "$scan" "$(bc -l <<<"$scan / $index")" "$add"
    done
done

# Per byte of selector and byte of event, of a pattern that almost occurs everywhere; all others per byte of both together.
printf '\nHostile selectors: instructions to evaluate one, by bytes of selector x bytes of event; linear means that the last column does not grow\n'
printf '%-14s %12s %12s %12s %12s   %s\n' kind '1000x1000' '4000x1000' '1000x8000' '4000x8000' 'per byte pair, or per byte'
for kind in like-segment like-segments like-blanks chain sum nested json in ranges; do
    line='' rates=''
    for shape in 1000x1000 4000x1000 1000x8000 4000x8000; do
        size=${shape%x*} length=${shape#*x}
        cost=$(each 10 --with "$kind" --size "$size" --length "$length")
        line+=$(printf ' %12d' "$cost")
        case $kind in
        like-*) rates+=$(printf ' %.3f' "$(bc -l <<<"$cost / ($size * $length)")") ;;
        *) rates+=$(printf ' %.1f' "$(bc -l <<<"$cost / ($size + $length)")") ;;
        esac
    done
    printf '%-14s%s  %s\n' "$kind" "$line" "$rates"
done

printf '\nHostile selectors: instructions to add and remove, by bytes of selector, and per byte\n'
printf '%-14s %12s %12s %12s   %s\n' kind 1000 2000 4000 'per byte'
for kind in chain nested json in products ranges; do
    line='' rates=''
    for size in 1000 2000 4000; do
        cost=$(each 10 --with "add-$kind" --size "$size")
        line+=$(printf ' %12d' "$cost")
        rates+=$(printf ' %.0f' "$(bc -l <<<"$cost / $size")")
    done
    printf '%-14s%s  %s\n' "$kind" "$line" "$rates"
done
