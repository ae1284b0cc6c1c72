#!/usr/bin/env bash
# Tests the journal on three real NATS servers, which are built from source under target/bench-peers unless they are there. Without Go it
# fails; with WHIMBREL_NO_ENGINE=1 it says that nothing was tested.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ ${WHIMBREL_NO_ENGINE:-} == 1 ]]; then
    echo "WHIMBREL_NO_ENGINE=1: the journal was not tested on real servers"
    exit 0
fi
bench/install-peers.sh nats
export NATS_SERVER=$PWD/target/bench-peers/nats-server
export CARGO_INCREMENTAL=0
cargo test --locked --profile quick --package whimbrel-engine --test nats -- --test-threads 1 --nocapture
cargo test --locked --profile quick --package whimbrel --test it -- engine:: --test-threads 1 --nocapture
# The page about it, command by command.
WALK=engine.md PATH=$PWD/target/bench-peers:$PATH WHIMBREL_BIN=${CARGO_TARGET_DIR:-$PWD/target}/quick/whimbrel tests/docs/run walks
