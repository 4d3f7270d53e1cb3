# Two commands do everything on a fresh Debian 12 or Ubuntu machine: `make demo` and `make test`.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build
.PHONY: help setup build demo test test-times test-rust test-interop conformance soak routing bench bench-full bench-route bench-exchange bench-ips bench-nic bench-wan bench-transport simulate management management-programs management-ovsdb management-netconf management-collectors management-gnmi management-ansible management-fleet kill-transfers damage-transfers exchange-check ips-check nic-check nic-timing demo-exchange build-switch build-demo build-exchange portal portal-check fuzz sanitize lint install install-files packages packages-check

# scripts/setup.sh node installs Node into target/node where the system has none or an older one.
export PATH := $(HOME)/.cargo/bin:$(CURDIR)/target/node/bin:$(PATH)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 600
ARGS ?=
BEFORE ?= landing
MANAGEMENT_PROFILE ?= release
MANAGEMENT_TARGET = $(CURDIR)/target/$(if $(filter dev,$(MANAGEMENT_PROFILE)),debug,$(MANAGEMENT_PROFILE))
MANAGEMENT_TEST = MILLRACE_TARGET=$(MANAGEMENT_TARGET) scripts/apart.sh target/venv/bin/python -m pytest -q -s

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: ## install Debian packages and, if cargo is missing, rustup
	@scripts/setup.sh

build: build-switch build-exchange ## build all programs, optimised

build-switch: setup
	cargo build --release --locked -p millraced -p millrace -p millrace-experiments -p millrace-nf-host -p millrace-generator -p millrace-wan -p millrace-nic-device -p millrace-courier-dpdk -p millrace-mgmt

build-exchange: setup portal
	cargo build --release --locked -p millrace-ix

build-demo: setup
	cargo build --profile demo --locked -p millraced -p millrace -p millrace-nf-host -p millrace-nic-device -p millrace-wan

demo: build-demo ## demonstrate three hosts on one switch with real traffic (KEEP=1 leaves the lab running)
	@demo/demo.sh

demo-exchange: ## demonstrate an exchange point: two sites, four routers, a path ordered on the page, an attack (PAGE=no needs no browser)
	@scripts/setup.sh exchange
	@$(MAKE) --no-print-directory build
	@scripts/setup.sh python
	@demo/exchange/demo.sh $(if $(filter no,$(PAGE)),--no-page) $(ARGS)

test: setup ## run all tests but the long forms: Rust, loom, and Python with other switches and controllers
	cargo xtask architecture
	cargo xtask ledger
	@scripts/setup.sh python
	@scripts/setup.sh guests || echo "guests: QEMU or Debian's cloud kernel is not available; their tests are skipped"
	@scripts/setup.sh routers || echo "routers: BIRD 2, FRR or GoBGP is not available; their tests are skipped"
	@scripts/setup.sh management || echo "management: Ansible is not available; its tests are skipped"
	@scripts/setup.sh packages || echo "packages: debhelper, mmdebstrap or systemd-nspawn is not available; their tests are skipped"
	@scripts/setup.sh hardware || echo "hardware: Verilator or yosys is not available; the tests of the RTL are skipped"
	@scripts/test.sh

test-times: ## print the slowest tests and build units of the last `make test`
	@scripts/test-times.py

test-rust: setup ## run the tests in Rust only
	cargo xtask architecture
	cargo xtask ledger
	@scripts/test.sh rust

test-interop: setup ## run the tests in Python only
	@scripts/setup.sh python
	@scripts/setup.sh guests || echo "guests: QEMU or Debian's cloud kernel is not available; their tests are skipped"
	@scripts/setup.sh routers || echo "routers: BIRD 2, FRR or GoBGP is not available; their tests are skipped"
	@scripts/setup.sh management || echo "management: Ansible is not available; its tests are skipped"
	@scripts/setup.sh packages || echo "packages: debhelper, mmdebstrap or systemd-nspawn is not available; their tests are skipped"
	@scripts/setup.sh hardware || echo "hardware: Verilator or yosys is not available; the tests of the RTL are skipped"
	@scripts/test.sh python

conformance: setup ## run os-ken's OpenFlow 1.3 suite, all 991 cases (half an hour)
	@scripts/setup.sh python
	cargo build --locked -p millraced
	scripts/apart.sh target/venv/bin/python tests/conformance/run.py

soak: build-switch ## test hosts for SOAK_SECONDS (600) while controllers are killed, stopped, half open and flooding; no packet may be lost
	@scripts/setup.sh python
	MILLRACE_TARGET=$(CURDIR)/target/release scripts/apart.sh target/venv/bin/python tests/interop/chaos.py --seconds $(SOAK_SECONDS)

routing: setup ## run the long forms of the router's tests: churn beside `ip route get`, ICMP errors beside the kernel's, access lists beside nftables, random networks of RSTP, bonds of Linux, hostile neighbours, FRR, half an hour of everything at once (90 minutes)
	@scripts/setup.sh python
	@scripts/setup.sh guests || echo "guests: QEMU or Debian's cloud kernel is not available; their tests are skipped"
	@scripts/setup.sh routers
	MILLRACE_ROUTING_ADDRESSES=$(or $(ROUTING_ADDRESSES),1000000) scripts/apart.sh cargo test --locked -p millrace-rib --test kernel -- --nocapture
	cargo build --locked -p millraced -p millrace
	cargo build --locked -p millrace-router --example forwarded
	MILLRACE_ROUTING_LONG=1 scripts/apart.sh target/venv/bin/python -m pytest -q -s tests/interop/test_router.py tests/interop/test_router_acl.py tests/interop/test_router_kernel.py tests/interop/test_router_beside_kernel.py tests/interop/test_router_hostile.py tests/interop/test_router_bpdus.py tests/interop/test_lag.py tests/interop/test_lag_guests.py tests/interop/test_rstp.py
	MILLRACE_ROUTING_LONG=1 scripts/apart.sh target/venv/bin/python -m pytest -q -s tests/interop/test_router_topology.py tests/interop/test_router_frr.py tests/interop/test_router_bird.py tests/interop/test_router_restarts.py tests/interop/test_routing_recipes.py
	MILLRACE_ROUTING_LONG=1 scripts/apart.sh target/venv/bin/python -m pytest -q -s tests/interop/test_router_churn.py
	MILLRACE_RSTP_NETWORKS=1500 cargo test --locked -p millrace-l2ctl --test it -- --nocapture random_networks

bench-nic: build-switch ## measure what marks of a classifying NIC save (a minute; ARGS=--quick: seconds; ARGS="--governed 60": the governor on all cases of forward and hostile, too; rows in out/bench/nic.json)
	cargo build --release --locked -p millrace-pipeline --examples
	cargo build --release --locked -p millrace-datapath --example governor
	scripts/nic-check.py bench --bench="$(ARGS)"

bench-route: build-switch ## measure the router against its gates, beside the kernel, DPDK's structures and l3fwd (ten minutes; ARGS=--quick: one)
	@scripts/setup.sh python
	@scripts/setup.sh l3fwd || echo "l3fwd: not available; its row says so"
	cargo build --release --locked -p millrace-fib -p millrace-rib -p millrace-router --examples
	target/release/millrace bench route --sources . $(ARGS)
	target/release/millrace report out/bench

bench-exchange: build-switch ## run an exchange for an hour: traffic, changes, kills, cut trunks (E11, gate A38; ARGS=--quick: two minutes; ARGS="--seconds 604800": a week)
	@scripts/setup.sh python
	cargo build --release --locked -p millrace-ix
	target/release/millrace bench exchange --sources . $(ARGS)
	target/release/millrace report out/bench

bench-ips: build-switch ## measure intrusion prevention against its gates, beside the build of BEFORE (a commit; by default that of origin/main, BEFORE= for none; half an hour, and a build; ARGS=--quick: some minutes; ARGS=--captures-only: public captures only)
	@before=$(if $(BEFORE),$$(scripts/build-before.sh $(BEFORE) millrace)); \
	set -x; target/release/millrace bench ips $${before:+--before $$before} $(ARGS)
	target/release/millrace report out/bench

bench: build-switch ## measure and print the acceptance figures, beside the build of BEFORE (a commit; by default that of origin/main, BEFORE= for none; half an hour)
	@before=$(if $(BEFORE),$$(scripts/build-before.sh $(BEFORE))); \
	set -x; target/release/millrace bench $${before:+--before $$before} $(ARGS)

bench-full: build-switch ## run all experiments except ips, exchange, wan and transport, and write a report to out/bench
	target/release/millrace bench all
	target/release/millrace bench lan
	target/release/millrace bench chain
	target/release/millrace bench lan --wan "delay=10ms,rate=1Gbps"
	target/release/millrace bench chain --wan "delay=10ms,rate=1Gbps"
	target/release/millrace profile
	target/release/millrace report out/bench

bench-wan: build-switch ## measure the emulator of wide-area paths against its gates, beside tbf and netem (about a quarter of an hour; ARGS="--row guest": netem only)
	@scripts/setup.sh guests || echo "guests: QEMU or Debian's cloud kernel is not available; the rows of netem say so"
	target/release/millrace bench wan $(ARGS)
	target/release/millrace report out/bench

bench-transport: build-switch ## measure bulk transfers against their gates, beside TCP, uftp, SRT, rsync, scp (two and a half hours; ARGS=--quick: a quarter of one)
	@scripts/setup.sh peers || echo "peers: some are not available; their rows say so"
	@$(MAKE) -s -k -C contrib/peers || echo "peers: some libraries are not available; their rows say so"
	cargo build --release --locked -p millrace-courier --examples
	MILLRACE_RECEIVE_PATH=target/release/examples/receive_path target/release/millrace bench transport $(ARGS)
	target/release/millrace report out/bench

simulate: setup ## run a thousand random sessions of the transport in virtual time (minutes)
	cargo test --release --locked -p millrace-transport-simulator --test it -- --ignored --nocapture

management: management-ovsdb management-netconf management-collectors management-gnmi management-ansible management-fleet ## run the long forms of the tests of OVSDB (500 ports beside Open vSwitch, 2,000 by ovsdbapp, Mininet's larger tree, Neutron's library), of NETCONF (bounds of times, Ansible's netcommon), of collectors (goflow2; a walk of 1,000 ports), of gNMI (50 subscribers; clients in Go), of Ansible (40 tasks, ansible-core 2.14 and 2.19, ansible-lint, ansible-test sanity) and of etcd (a change of 55 switches, 200 random faults, etcd away for ten minutes); two hours; `make -k` goes on after a part that fails; MANAGEMENT_PROFILE=dev: programs that are not optimised, which miss bounds of speed

management-programs: setup
	@scripts/setup.sh python
	@scripts/setup.sh management
	@scripts/setup.sh neutron || echo "neutron: not available; its test is skipped"
	@scripts/setup.sh gnmi-clients || echo "clients of gNMI in Go: not available; their tests are skipped"
	cargo build --profile $(MANAGEMENT_PROFILE) --locked -p millraced -p millrace -p millrace-mgmt

management-ovsdb: management-programs
	MILLRACE_OVSDB_LONG=1 $(MANAGEMENT_TEST) tests/interop/test_ovsdb.py tests/interop/test_ovsdb_many.py tests/interop/test_ovsdb_mininet.py tests/interop/test_ovsdb_neutron.py

management-netconf: management-programs
	@scripts/setup.sh netcommon || echo "ansible.netcommon: not available; its test is skipped"
	MILLRACE_NETCONF_LONG=1 $(MANAGEMENT_TEST) tests/interop/test_netconf.py tests/interop/test_netconf_scenario.py tests/interop/test_netconf_ansible.py

management-collectors: management-programs
	@scripts/setup.sh collectors || echo "pmacct, nfdump: not available; their tests are skipped"
	@scripts/setup.sh goflow2 || echo "goflow2: not available; its tests are skipped"
	MILLRACE_OVSDB_LONG=1 $(MANAGEMENT_TEST) tests/interop/test_sflow.py tests/interop/test_ipfix.py tests/interop/test_goflow2.py tests/interop/test_snmp.py tests/interop/test_snmp_exporter.py

management-gnmi: management-programs
	MILLRACE_GNMI_LONG=1 $(MANAGEMENT_TEST) tests/interop/test_gnmi_load.py tests/interop/test_gnmi_go.py

management-ansible: management-programs
	MILLRACE_ANSIBLE_LONG=1 $(MANAGEMENT_TEST) tests/interop/test_ansible.py
	@scripts/setup.sh ansible || echo "ansible-core 2.19: not available; the tests run with Debian's alone"
	if [ -e target/ansible/bin/ansible-playbook ]; then PATH=$(CURDIR)/target/ansible/bin:$$PATH $(MANAGEMENT_TEST) tests/interop/test_ansible.py; fi
	if [ -e target/ansible/bin/ansible-lint ]; then cd contrib/ansible_collections/millrace/switch && PATH=$(CURDIR)/target/ansible/bin:$$PATH ansible-lint --offline; fi
	if [ -e target/ansible/bin/ansible-test ]; then cd contrib/ansible_collections/millrace/switch && PATH=$(CURDIR)/target/ansible/bin:$$PATH ansible-test sanity --python $$($(CURDIR)/target/ansible/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); fi

management-fleet: management-programs
	MILLRACE_FLEET_LONG=1 $(MANAGEMENT_TEST) tests/interop/test_fleet_faults.py

kill-transfers: setup ## kill either end of a transfer of 512 MiB 200 times; the tree must be complete, and few bytes may be sent again
	MILLRACE_KILLS=200 MILLRACE_KILL_BYTES=536870912 cargo test --locked -p millrace --test it kill:: -- --nocapture

damage-transfers: setup ## damage the files of a thousand interrupted transfers between their runs; no wrong byte may get a final name (minutes)
	MILLRACE_TRANSFERS=1000 cargo test --locked -p millrace-fileset --test it damage::

exchange-check: setup ## run the long forms of the exchange's tests (docs/exchange-acceptance.md): kills, tenants under change, 100,000 entries, 24 real routers, 100 orders beside Faucet
	@scripts/setup.sh python
	@scripts/setup.sh routers
	MILLRACE_EXCHANGE_LONG=1 cargo test --locked -p millrace-ix-engine --test it -- --nocapture simulation
	MILLRACE_EXCHANGE_LONG=1 cargo test --locked -p millrace-ix-service --test it -- --nocapture crash retries links the_rate_of_orders
	MILLRACE_EXCHANGE_LONG=1 cargo test --locked -p millrace-ix-store --test it -- --nocapture long_chain each_changed
	MILLRACE_EXCHANGE_LONG=1 cargo test --locked -p millrace-bgp --test it -- --nocapture bgpkit malformed_systematic million
	MILLRACE_EXCHANGE_LONG=1 cargo test --locked -p millrace-ix-plan --test it -- --nocapture large_lan rates
	MILLRACE_EXCHANGES=50 MILLRACE_FRAMES=10000 cargo test --locked -p millrace-ix-plan --test it -- --nocapture random peering_lan
	MILLRACE_MUTANTS=200 MILLRACE_EXCHANGES=1000 MILLRACE_CHANGES=500 cargo test --locked -p millrace-ix-verify --test it -- --nocapture faults right effects
	cargo bench --locked -p millrace-ix-plan --bench filters
	MILLRACE_PLAN_EXCHANGES=50 MILLRACE_PLAN_FRAMES=400 scripts/apart.sh target/venv/bin/python -m pytest -q -s tests/interop/test_exchange_plan.py
	cargo build --locked -p millraced -p millrace -p millrace-ix
	MILLRACE_EXCHANGE_LONG=1 scripts/apart.sh target/venv/bin/python -m pytest -q -s tests/interop/test_exchange.py tests/interop/test_exchange_lan.py tests/interop/test_exchange_lag.py tests/interop/test_exchange_tags.py
	MILLRACE_EXCHANGE_LONG=1 scripts/apart.sh target/venv/bin/python -m pytest -q -s tests/interop/test_exchange_engines.py tests/interop/test_exchange_partition.py tests/interop/test_exchange_upgrade.py
	MILLRACE_EXCHANGE_LONG=1 scripts/apart.sh target/venv/bin/python -m pytest -q -s tests/interop/test_exchange_filters.py tests/interop/test_exchange_validation.py
	MILLRACE_EXCHANGE_LONG=1 scripts/apart.sh target/venv/bin/python -m pytest -q -s tests/interop/test_oam_routers.py
	@scripts/setup.sh collectors
	MILLRACE_SFLOW_DATAGRAMS=1000000 scripts/apart.sh target/venv/bin/python -m pytest -q -s tests/interop/test_sflow.py
	scripts/apart.sh target/venv/bin/python -m pytest -q -s tests/interop/check_attacks.py
	cargo build --locked -p millrace-ix-series --example month
	scripts/apart.sh target/venv/bin/python -m pytest -q -s tests/interop/check_percentiles.py
	scripts/apart.sh target/venv/bin/python -m pytest -q -s tests/interop/check_exchange.py
	@# 50,000 frames a second and 100,000 entries need optimised switches.
	cargo build --release --locked -p millraced -p millrace -p millrace-ix
	MILLRACE_TARGET=$(CURDIR)/target/release MILLRACE_EXCHANGE_LONG=1 scripts/apart.sh target/venv/bin/python -m pytest -q -s tests/interop/test_exchange_tenants.py tests/interop/test_exchange_reuse.py tests/interop/test_exchange_scale.py tests/interop/test_exchange_rules.py tests/interop/test_exchange_load.py tests/interop/test_exchange_streams.py tests/interop/test_exchange_export.py
	@scripts/setup.sh api-clients
	MILLRACE_EXCHANGE_LONG=1 scripts/apart.sh target/venv/bin/python -m pytest -q -s tests/interop/test_exchange_retries.py tests/interop/test_exchange_api.py tests/interop/test_openapi.py

portal: ## build the web page of the exchange (needs Node 20.19: scripts/setup.sh node; without it the engine serves the API only)
	@scripts/portal.sh

ips-check: setup ## compare intrusion prevention with all recorded answers of Suricata, make a flow for each of 31,080 rules, and have EveBox read its events
	MILLRACE_ANSWERS=all cargo test --locked -p millrace-ips-offline --test it -- --nocapture
	MILLRACE_SYNTHESIS=all cargo test --locked -p millrace-ips-engine --test it synthesis:: -- --nocapture
	@scripts/setup.sh python
	@scripts/setup.sh evebox
	cargo build --locked -p millrace
	target/venv/bin/python -m pytest -q -s tests/interop/test_eve.py

nic-check: setup build-switch ## check the NIC against its gates N1 to N21: RTL (front ends, proofs, 10,000,000 frames, wire rate, parity, coverage, place and route), marks, faults, moves (rows in out/bench/nic.json; STEPS="planner switch": these only)
	@scripts/setup.sh python
	@scripts/setup.sh hardware || echo "hardware: Verilator, yosys or nextpnr is not available; their rows say so"
	cargo build --locked -p millrace-nic-model --example records
	cargo build --locked -p millraced -p millrace -p millrace-nic-device
	cargo build --release --locked -p millrace-pipeline --examples
	cargo build --release --locked -p millrace-datapath --example governor
	target/venv/bin/python scripts/nic-check.py $(STEPS)

nic-timing: setup ## place and route the NIC's configuration `ten` with three seeds (13 minutes of processor time each)
	@scripts/setup.sh python
	@scripts/setup.sh hardware
	target/venv/bin/python rtl/check.py timing

portal-check: portal ## test the web page: units, journeys in Chromium against the API, and a path ordered from a running engine
	@scripts/setup.sh portal
	cargo build --locked -p millrace-ix-api --example portal --features demo
	cd portal && npm run check && npm test && npm run journeys -- --measure
	cargo build --locked -p millraced -p millrace-ix
	scripts/apart.sh target/venv/bin/python -m pytest -q -s tests/interop/test_exchange_page.py

fuzz: setup ## run every fuzzer for FUZZ_SECONDS (60) each
	@scripts/fuzz.sh $(FUZZ_SECONDS)

sanitize: setup ## compare the fast path with its oracle at length, with each SIMD instruction set and under AddressSanitizer
	@scripts/sanitize.sh

lint: setup ## check formatting, clippy, licences and advisories
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo xtask architecture
	cargo xtask ledger
	@scripts/deny.sh

install: build ## install into $(PREFIX), with units for systemd
	@$(MAKE) --no-print-directory install-files PROGRAMS=target/release
	@[ -e "$${MILLRACE_PORTAL:-portal/dist}/index.html" ] || echo 'install: millrace-ix has no web page and serves the API only, because there is no Node 20.19; to add the page: scripts/setup.sh node && make install'

packages: build ## build Debian packages into target/packages (docs/install.md)
	@scripts/setup.sh packages
	@scripts/packages.sh target/release

packages-check: packages ## install, upgrade, remove and purge the packages in a clean Debian 12, and measure the packets that upgrades lose
	@scripts/setup.sh python
	MILLRACE_PACKAGES=target/packages MILLRACE_PACKAGES_LONG=1 scripts/apart.sh target/venv/bin/python -m pytest -q -s tests/interop/test_packages.py

# PROGRAMS is the folder of the programs; debian/rules calls this, too.
install-files:
	for program in millraced millrace-nf millrace-nic millrace-wan millrace-mgmt; do install -Dm755 -t $(DESTDIR)$(PREFIX)/sbin $(PROGRAMS)/$$program; done
	for program in millrace millrace-bench millrace-courier millrace-generator millrace-ix; do install -Dm755 -t $(DESTDIR)$(PREFIX)/bin $(PROGRAMS)/$$program; done
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for unit in bin/millraced/millraced bin/millrace-mgmt/millrace-mgmt bin/millrace-ix/millrace-ix crates/transport/daemon/millrace-courier; do \
	    sed 's|@PREFIX@|$(PREFIX)|' $$unit.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/$${unit##*/}.service; done
	install -d $(foreach section,1 5 8,$(DESTDIR)$(PREFIX)/share/man/man$(section))
	@# `millrace bench` and the program millrace-bench have pages of the same name: the program's is kept.
	for program in millrace millrace-bench millrace-ix; do $(PROGRAMS)/$$program man $(DESTDIR)$(PREFIX)/share/man/man1; done
	for program in millraced millrace-mgmt millrace-wan millrace-courier millrace-nf millrace-nic millrace-generator; do \
	    $(PROGRAMS)/$$program --man > $(DESTDIR)$(PREFIX)/share/man/man8/$$program.8; done
	$(PROGRAMS)/millraced --man-config > $(DESTDIR)$(PREFIX)/share/man/man5/millraced.toml.5
	install -d $(foreach folder,bash-completion/completions zsh/site-functions fish/vendor_completions.d,$(DESTDIR)$(PREFIX)/share/$(folder))
	for program in millrace millrace-bench millrace-ix; do \
	    $(PROGRAMS)/$$program completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$program; \
	    $(PROGRAMS)/$$program completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_$$program; \
	    $(PROGRAMS)/$$program completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$$program.fish; done
