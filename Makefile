# Whimbrel: `make run` and `make test` are all the set-up there is. `make` alone lists what there is.

.DEFAULT_GOAL := help
.PHONY: help run test test-net test-engine bench bench-journal bench-selectors bench-semi-durable bench-durable bench-transports bench-disturbance bench-responsiveness bench-engine fuzz soak upgrade worlds audit deb dist format

# Seconds for each fuzz target.
SECONDS ?= 60
# Simulated worlds, each from its own seed.
SEEDS ?= 5000
# How long the soak takes, and how often it lets a broker or a link fail, on average (or never).
HOURS ?= 4
KILL_EVERY ?= 10m
# The older binary that an upgrade begins with.
OLD ?=
# Arguments for the demonstration, the report on selectors and the measurement of disturbance, e.g. `make run ARGS="--vehicles 1000"`.
ARGS ?=

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## build, and watch a city's buses report through three brokers in three regions
	@scripts/require.sh cc=build-essential
	cargo build --locked --release --package whimbrel
	@case " $(ARGS) " in *" --engine "*) bench/install-peers.sh nats ;; esac
	@"$${CARGO_TARGET_DIR:-target}/release/whimbrel" demo $(ARGS)

test: ## check and test everything, real MQTT clients included
	@scripts/test.sh

test-net: ## test brokers in network namespaces whose links are cut and whose addresses change (needs root, else it skips)
	@scripts/test-net.sh

test-engine: ## test the journal on three real NATS servers (builds them with Go)
	@scripts/require.sh cc=build-essential
	@scripts/test-engine.sh

bench: ## measure side by side with other brokers (installs them under target/)
	@scripts/require.sh cc=build-essential
	bench/install-peers.sh
	cargo build --locked --release --package whimbrel
	@"$${CARGO_TARGET_DIR:-target}/release/whimbrel" bench compare

bench-journal: ## measure the journal beside the bare disk (3 minutes; ARGS="10" for opening 10 GB)
	@scripts/require.sh cc=build-essential
	cargo build --locked --release --package whimbrel
	@"$${CARGO_TARGET_DIR:-target}/release/whimbrel" bench durable --section journal --seconds 0.7
	cargo run --locked --release --package whimbrel-journal --example open_rate -- "$${CARGO_TARGET_DIR:-target}/bench-journal" $(ARGS)

bench-selectors: ## measure the index over selectors (15 minutes; ARGS="--help" tells what can be chosen)
	@scripts/require.sh cc=build-essential
	cargo bench --locked --package whimbrel-selector --bench report -- $(ARGS)

bench-semi-durable: ## measure what semi-durable subscriptions cost (10 minutes; ARGS="--section storm" chooses)
	@scripts/require.sh cc=build-essential
	cargo build --locked --release --package whimbrel
	@"$${CARGO_TARGET_DIR:-target}/release/whimbrel" bench semi-durable $(ARGS)

bench-durable: ## measure what the journal and durable subscriptions cost, beside other brokers (15 minutes; ARGS="--section publish" chooses)
	@scripts/require.sh cc=build-essential
	bench/install-peers.sh
	cargo build --locked --release --package whimbrel
	@"$${CARGO_TARGET_DIR:-target}/release/whimbrel" bench durable $(ARGS)

bench-transports: ## measure what TLS and WebSocket cost the broker per message, beside TCP (two minutes; ARGS="--body 1000" for other sizes)
	@scripts/require.sh cc=build-essential
	cargo build --locked --release --package whimbrel
	@"$${CARGO_TARGET_DIR:-target}/release/whimbrel" bench transports $(ARGS)

bench-disturbance: ## measure how long a bystander waits while others mean harm, and while one input makes much work (three minutes; ARGS="flood" chooses the harm)
	@scripts/require.sh cc=build-essential python3
	cargo build --locked --release --package whimbrel
	@WHIMBREL_BIN="$${CARGO_TARGET_DIR:-target}/release/whimbrel" python3 tests/clients/disturbance.py $(ARGS)
	@WHIMBREL_BIN="$${CARGO_TARGET_DIR:-target}/release/whimbrel" python3 tests/clients/turns.py

bench-responsiveness: ## deadlines beside Zenoh and NATS behind the same links, in network namespaces (half an hour; needs root; ARGS="--system whimbrel zenoh" chooses)
	@scripts/require.sh cc=build-essential python3 python:venv=python3-venv ip=iproute2
	bench/install-peers.sh nats zenoh
	cargo build --locked --release --package whimbrel
	@bench/responsiveness-peers/run.py --whimbrel "$${CARGO_TARGET_DIR:-target}/release/whimbrel" $(ARGS)

bench-engine: ## measure what an engine costs: commits, durable publishing, starts from nothing, the pause when a server dies (ten minutes; builds NATS with Go)
	@scripts/require.sh cc=build-essential python3
	bench/install-peers.sh nats
	cargo build --locked --release --package whimbrel
	NATS_SERVER=$(CURDIR)/target/bench-peers/nats-server cargo run --locked --release --package whimbrel-engine --example commit_rate
	@bench/engine.py "$${CARGO_TARGET_DIR:-target}/release/whimbrel" target/bench-peers/nats-server $(ARGS)

fuzz: ## fuzz every target for SECONDS (60) each
	@scripts/fuzz.sh $(SECONDS)

soak: ## run the main job for HOURS (4), with a failure each KILL_EVERY (10m); see that memory, files and disk of its brokers stay flat; report in soak-out
	@scripts/require.sh cc=build-essential python3
	cargo build --locked --release --package whimbrel
	@scripts/soak.py "$${CARGO_TARGET_DIR:-target}/release/whimbrel" --hours $(HOURS) --kill-every $(KILL_EVERY) --demo-args "$(ARGS)"

upgrade: ## roll brokers of an older binary (OLD=PATH) up to this one, one by one under load, and judge what clients saw
	@test -x "$(OLD)" || { echo "OLD must name the binary to begin with, as: make upgrade OLD=/usr/bin/whimbrel"; exit 2; }
	WHIMBREL_OLD_BIN="$(abspath $(OLD))" cargo test --locked --profile quick --package whimbrel --test overlay restarted_one_by_one -- --nocapture
	cargo run --locked --profile quick --package whimbrel -- demo --plain --roll --roll-from "$(abspath $(OLD))" --kill-every 2s --duration 30s

worlds: ## run the simulator over SEEDS (5000) seeds
	WHIMBREL_SEEDS=$(SEEDS) cargo test --locked --profile quick --package whimbrel-sim

audit: ## check dependencies against the whole advisory database (needs a network)
	@scripts/audit.sh

deb: ## build a Debian package of the broker under target/deb, and try it
	@scripts/require.sh cc=build-essential
	cargo build --locked --release --package whimbrel
	@scripts/package-deb.sh --check

dist: ## build what a release consists of under target/dist: a static binary, packed thrice, what it is made of, and checksums; and try it
	@scripts/dist.sh

format: ## format the code
	cargo fmt --all
