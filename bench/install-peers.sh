#!/bin/sh
# Installs the brokers that are compared with into target/bench-peers. Run again, it only does what is missing.
#
#   bench/install-peers.sh [NAME...]    mosquitto nats rumqttd, those of `make bench`, unless others are named; zenoh for `make bench-responsiveness`
set -eu

NATS_VERSION=v2.15.3
RUMQTTD_VERSION=0.20.0
ZENOH_VERSION=1.10.2

cd "$(dirname "$0")/.."
peers=$PWD/target/bench-peers
mkdir -p "$peers"

say() { printf 'peers: %s\n' "$*"; }
fail() { printf 'peers: %s\n' "$*" >&2; exit 1; }

[ $# -gt 0 ] || set -- mosquitto nats rumqttd
names=" $* "
is_wanted() { case "$names" in *" $1 "*) true ;; *) false ;; esac; }

if ! is_wanted mosquitto; then
    :
elif [ -x /usr/sbin/mosquitto ] || command -v mosquitto >/dev/null; then
    say "mosquitto is there"
elif command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    say "installing mosquitto with apt-get"
    apt-get update -qq
    # Packages may not start services while this file exists: the broker would take port 1883.
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
        printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
        chmod +x /usr/sbin/policy-rc.d
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mosquitto >/dev/null
else
    fail "mosquitto is missing and cannot be installed without root and apt-get: install the package mosquitto"
fi

if ! is_wanted nats; then
    :
elif [ "$("$peers/nats-server" --version 2>/dev/null || true)" = "nats-server: $NATS_VERSION" ]; then
    say "nats-server $NATS_VERSION is there"
else
    command -v go >/dev/null || fail "nats-server $NATS_VERSION is built from source and Go is missing: install Go 1.26 or newer (go.dev/dl)"
    say "building nats-server $NATS_VERSION"
    GOBIN=$peers go install "github.com/nats-io/nats-server/v2@$NATS_VERSION"
fi

if ! is_wanted rumqttd; then
    :
elif [ "$("$peers/bin/rumqttd" --version 2>/dev/null || true)" = "rumqttd $RUMQTTD_VERSION" ]; then
    say "rumqttd $RUMQTTD_VERSION is there"
else
    command -v cargo >/dev/null || fail "rumqttd is built from source and cargo is missing: install Rust (rustup.rs)"
    say "building rumqttd $RUMQTTD_VERSION"
    # Not --locked: the locked metrics 0.22.1 does not compile with today's Rust; 0.22.4 does.
    cargo install --quiet rumqttd --version "$RUMQTTD_VERSION" --root "$peers"
fi

if ! is_wanted zenoh; then
    :
elif "$peers/zenoh/bin/python" -m pip list --format freeze 2>/dev/null | grep -qx "eclipse-zenoh==$ZENOH_VERSION"; then
    say "zenoh $ZENOH_VERSION is there"
else
    python3 -c "import venv, ensurepip" 2>/dev/null || fail "zenoh is a Python package and venv is missing: install the package python3-venv"
    say "installing zenoh $ZENOH_VERSION"
    python3 -m venv "$peers/zenoh"
    "$peers/zenoh/bin/python" -m pip install --quiet --disable-pip-version-check "eclipse-zenoh==$ZENOH_VERSION"
fi
