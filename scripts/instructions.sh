#!/usr/bin/env bash
# Counts the instructions of messages that need nothing special, which no other program on the machine can disturb, and compares them
# with the budgets in bench/instructions/budgets: fails if one is off by more than 1 %. `scripts/instructions.sh BINARY` compares with
# another build of the package `instructions` instead. Installs valgrind if that is missing and can be.
#
# Each figure is the difference of two runs which differ only in the number of rounds, divided by the rounds between them.
set -euo pipefail
shopt -s inherit_errexit
other=${1:+$(realpath "$1")}
cd "$(dirname "$0")/.."

scripts/require.sh cc=build-essential valgrind
cargo build --quiet --locked --release --package instructions
readonly ours=${CARGO_TARGET_DIR:-target}/release/instructions
readonly theirs=$other
readonly rounds=2000

# Instructions of one run of a binary: its rounds, and its case.
counted() {
    local said collected
    if ! said=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='instructions::counted*' "$@" 2>&1); then
        printf '%s failed:\n%s\n' "$*" "$said" >&2
        return 1
    fi
    collected=$(sed -n 's/.*Collected : //p' <<<"$said")
    if [[ -z $collected || $collected -eq 0 ]]; then
        printf '%s: nothing was counted:\n%s\n' "$*" "$said" >&2
        return 1
    fi
    echo "$collected"
}

# Instructions of one round of a binary's case.
per_round() {
    local binary=$1 one two
    shift
    one=$(counted "$binary" "$rounds" "$@")
    two=$(counted "$binary" $((2 * rounds)) "$@")
    echo $(((two - one) / rounds))
}

# What the figures depend on beside the code: the compiler, and the C library with its variants for processors.
around="$(rustc --version | cut -d ' ' -f 1,2), $(getconf GNU_LIBC_VERSION 2>/dev/null || echo another C library), $(uname -m)"
around+=", $(grep -qw avx2 /proc/cpuinfo && echo with AVX2 || echo without AVX2)${RUSTFLAGS:+, RUSTFLAGS}"
counted_with=$(sed -n 's/^with //p' bench/instructions/budgets)
has_budgets=yes
if [[ -z $theirs && $around != "$counted_with" ]]; then
    has_budgets=no
    echo "the budgets are those of $counted_with; here it is $around: the figures are shown and not compared"
fi

printf '%-58s %8s %8s %7s\n' 'instructions of one round' now "$([[ -n $theirs ]] && echo other || echo budget)" ratio
within=0 off=0
while IFS='|' read -r arguments budget what; do
    [[ -n $budget ]] || continue
    # shellcheck disable=SC2086
    now=$(per_round "$ours" $arguments)
    # shellcheck disable=SC2086
    [[ -z $theirs ]] || budget=$(per_round "$theirs" $arguments)
    verdict=
    if [[ $has_budgets == yes && -z $theirs ]]; then
        if ((now * 100 > budget * 101)); then
            verdict='  MORE: find what it is, or raise the budget with the reason' off=$((off + 1))
        elif ((now * 101 < budget * 100)); then
            verdict='  LESS: lower the budget' off=$((off + 1))
        else
            within=$((within + 1))
        fi
    fi
    printf '%-58s %8d %8d %3d.%03d%s\n' "$what" "$now" "$budget" $((now / budget)) $((now * 1000 / budget % 1000)) "$verdict"
done < <(grep -v '^#' bench/instructions/budgets)
if [[ -z $theirs && $has_budgets == yes ]]; then printf '%d passed, %d failed\n' "$within" "$off"; fi
exit $((off > 0))
