#!/usr/bin/env bash
# Checks all dependencies against the whole advisory database. Needs cargo-deny and a network that reaches the database; the short
# list in advisories.toml is checked by every `cargo xtask tidy` without either.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cargo deny --version >/dev/null 2>&1; then
    echo "installing cargo-deny"
    cargo install cargo-deny --locked || {
        echo "cargo-deny could not be installed; run: cargo install cargo-deny --locked" >&2
        exit 1
    }
fi
cargo deny --locked check advisories bans licenses sources || {
    echo "the audit found something, or the database could not be fetched (the messages above say which)" >&2
    exit 1
}
