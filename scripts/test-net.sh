#!/usr/bin/env bash
# Brokers in network namespaces, joined by virtual Ethernet that is shaped with tc, cut with nft, and given other addresses. It takes root and Linux; elsewhere
# it says so and skips.
set -euo pipefail
cd "$(dirname "$0")/.."

# As in test.sh, with the same packages and profile, so that nothing is built twice.
export CARGO_INCREMENTAL=0
if [[ $(id -u) -ne 0 || $(uname -s) != Linux ]]; then
    echo "test-net: skipped: network namespaces take Linux and root"
    exit 0
fi
if ! scripts/require.sh ip=iproute2 tc=iproute2; then
    echo "test-net: skipped: without ip and tc there is no network to test in"
    exit 0
fi
scripts/require.sh nft=nftables || echo "test-net: without nft links are cut with tc"
WHIMBREL_TEST_NET=1 exec cargo test --locked --workspace --profile quick --test overlay -- --nocapture net::
