#!/usr/bin/env bash
# Tests the journal and brokers on three real NATS servers, which are built from source under target/bench-peers unless they are there, and runs the page about
# it. Without Go it fails; with WHIMBREL_NO_ENGINE=1 it says that nothing was tested.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ ${WHIMBREL_NO_ENGINE:-} == 1 ]]; then
    echo "WHIMBREL_NO_ENGINE=1: nothing was tested on real servers"
    exit 0
fi
bench/install-peers.sh nats
export NATS_SERVER=$PWD/target/bench-peers/nats-server
export CARGO_INCREMENTAL=0
scripts/run-tests.py quick engine
WALK=engine.md PATH=$PWD/target/bench-peers:$PATH WHIMBREL_BIN=${CARGO_TARGET_DIR:-$PWD/target}/quick/whimbrel tests/docs/run walks
