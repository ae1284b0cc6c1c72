#!/usr/bin/env bash
# Brokers in network namespaces, joined by virtual Ethernet that is shaped and cut with tc. It takes root and Linux; elsewhere it says so and skips.
set -euo pipefail
cd "$(dirname "$0")/.."

# As in test.sh, with the same packages and profile, so that nothing is built twice.
export CARGO_INCREMENTAL=0
if [[ $(id -u) -ne 0 || $(uname -s) != Linux ]] || ! command -v ip >/dev/null || ! command -v tc >/dev/null; then
    echo "test-net: skipped: network namespaces take Linux, root, ip and tc (iproute2)"
    exit 0
fi
WHIMBREL_TEST_NET=1 exec cargo test --locked --workspace --profile quick --test overlay -- --nocapture net::
