# One set of cargo flags for every step that builds: another feature set or other RUSTFLAGS would build all dependencies again.
# --locked because `check` writes nothing, Cargo.lock included; `fix` brings it up to date.
EVERYTHING := --workspace --all-features
LOCKED := --locked
# Optimised builds refuse the feature `sabotage`, so theirs are listed.
OPTIMISED := --release -p semel-server --features tasks $(LOCKED)
# The servers that tests use, for as long as the command after it takes.
SERVICES := scripts/with-postgres scripts/with-mariadb scripts/with-brokers scripts/with-pgvector
CASES ?= 100000
SEEDS ?= 0..10000
PROGRAMS ?= 0..2000

.DEFAULT_GOAL := help
.PHONY: help check browser languages conformance fix bench models bench-reads bench-workers kill hostile sim proof fuzz attack fuzz-http deny dist hello

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: ## all that CI checks; writes nothing in the tree
	@echo "== format"
	cargo fmt --all --check
	@echo "== lints"
	cargo clippy $(EVERYTHING) $(LOCKED) --all-targets -- -D warnings
	@echo "== lints of the library as it is embedded by default"
	cargo clippy -p semel $(LOCKED) -- -D warnings
	@echo "== tests and doctests, PostgreSQL and MariaDB included"
	$(SERVICES) cargo test $(EVERYTHING) $(LOCKED)
	@echo "== what is measured, alone"
	scripts/with-postgres cargo test $(EVERYTHING) $(LOCKED) --test semel -- --ignored most_steps_of_runs_write_to_no_index
	@echo "== SDKs for TypeScript and Python"
	scripts/with-postgres scripts/check-clients target/debug/semel
	@echo "== documentation"
	RUSTDOCFLAGS="-D warnings" cargo doc $(EVERYTHING) $(LOCKED) --no-deps

fix: ## format, and apply what clippy can repair
	cargo fmt --all
	cargo clippy $(EVERYTHING) --all-targets --fix --allow-dirty --allow-staged
	cargo fmt --all

bench: ## measure stores, engine and server; the results are in target/bench
	scripts/with-postgres cargo bench -p semel --bench store --features postgres
	scripts/with-postgres cargo bench -p semel --bench engine --features postgres
	cargo bench -p semel-server --bench http
	cargo bench -p semel-server --bench definitions
	cargo build --release -p semel-server
	scripts/measure-idle target/release/semel

bench-reads: ## measure every list and /readyz of a server with a million ended runs, the sweep of 400,000, and idle workers, on SQLite and PostgreSQL; the results are in target/bench
	SEMEL_BENCH_PHASES=reads,forget,idle scripts/with-postgres cargo bench -p semel-server --bench http

bench-workers: ## measure workers in TypeScript and Python against one in Rust; the results are in target/bench
	scripts/bench-workers

browser: ## play the console in Chromium, with axe-core where npm is present; writes pictures to target/console
	scripts/with-postgres scripts/with-chromium cargo test -p semel-server $(LOCKED) --all-features --test server -- browser::

languages: ## play a brief phase of the proof with workers of each SDK, restarts of their server, and SDKs in which a bug is planted
	scripts/check-clients --build
	$(SERVICES) cargo test $(EVERYTHING) $(LOCKED) --test proof -- --ignored languages::

kill: ## kill servers and engines 100 times on SQLite, and 100 times two of them on one PostgreSQL; prints its figures
	SEMEL_KILLS=100 $(SERVICES) cargo test -p semel-server $(LOCKED) --test server -- kill:: --test-threads 1
	SEMEL_KILLS=100 $(SERVICES) cargo test -p semel $(LOCKED) --all-features --test semel -- kill:: --test-threads 1

hostile: ## let one tenant hold all that it may, and measure the server's memory and what its neighbour notices
	SEMEL_TEST_HOSTILE=2000 $(SERVICES) cargo test $(OPTIMISED) --test server -- hostile:: --test-threads 1 --nocapture

fuzz: ## play CASES damaged texts (100,000 if not said) to every reader
	PROPTEST_CASES=$(CASES) $(SERVICES) cargo test $(EVERYTHING) $(LOCKED) --test semel --test server -- fuzz::

attack: ## check CASES damaged definitions, and expressions that attack, in an optimised build: 100 ms and 64 MiB each
	PROPTEST_CASES=$(CASES) cargo test $(OPTIMISED) --lib -- --test-threads 1 definitions::check:: definitions::expression::
	PROPTEST_CASES=$(CASES) cargo test $(OPTIMISED) --test server -- --test-threads 1 --nocapture fuzz::definitions

conformance: ## play PROGRAMS=0..2000 drawn programs on a worker of each SDK, with a crash at every boundary; takes an hour
	SEMEL_PROGRAMS=$(PROGRAMS) SEMEL_PROGRAMS_FILE=target/programs.jsonl $(SERVICES) cargo test $(EVERYTHING) $(LOCKED) --test semel -- conformance::programs
	cargo build --release -p semel-server $(LOCKED)
	scripts/with-postgres scripts/check-clients --programs target/programs.jsonl target/release/semel

# Not all features: optimised builds refuse the deliberate bugs.
proof: ## try for 30 minutes to lose or double an effect, with real processes that are killed; the figures are in target/proof.json
	scripts/check-clients --build
	$(SERVICES) cargo test --release -p semel-server --features tasks $(LOCKED) --test proof -- --ignored

sim: ## simulate engines that fail, SEEDS=0..100000 of them; SEEDS=7 plays one again
	SEMEL_SEEDS=$(SEEDS) cargo test -p semel $(LOCKED) --all-features --test sim -- no_seed_breaks_a_promise

models: ## run the tasks of models against a small real one, which is installed into target; takes minutes
	scripts/with-pgvector scripts/with-model cargo test $(EVERYTHING) $(LOCKED) --lib -- --ignored a_real_model

fuzz-http: ## ask a server everything that its description allows, and much that it does not
	scripts/fuzz-http

deny: ## check licences, bans, sources and, when reachable, advisories of all dependencies with cargo-deny
	scripts/deny

dist: ## build the archive of a release in target/dist: binary, completions, manual pages; the same bytes in every folder
	scripts/dist

hello: ## run the smallest example
	cargo run -p semel --example hello
