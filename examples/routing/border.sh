#!/usr/bin/env bash
# The recipe "a border router" of docs/routing.md: BGP with a provider by FRR, and zebra sends the routes by FPM. ROUTES is the
# number of routes that the provider announces (a full table has 1,000,000; by default 2,000). Run as root; MILLRACE names the
# program. It leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/../.."
source examples/routing/recipe.bash
readonly ROUTES=${ROUTES:-2000}
start_recipe border

sed -i -e '/^device = "kernel:isp"/a vlan = 10' -e '/^device = "kernel:h1"/a vlan = 20' "$config"
cat >>"$config" <<'EOF'

[[vrf]]
name = "border"
netns = "border"
routes = "fpm:127.0.0.1:2620"

[[interface]]
name = "wan"
vrf = "border"
bridge = "br0"
vlan = 10
address = ["192.0.2.2/30"]

[[interface]]
name = "lan"
vrf = "border"
bridge = "br0"
vlan = 20
address = ["10.0.20.1/24"]
EOF
run br0 "$MILLRACE" apply "$config" -m 'a border router'

frr border zebra -M dplane_fpm_nl <<'EOF'
fpm address 127.0.0.1 port 2620
EOF
frr border bgpd <<'EOF'
router bgp 65001
 bgp router-id 192.0.2.2
 no bgp ebgp-requires-policy
 neighbor 192.0.2.1 remote-as 65000
 neighbor 192.0.2.1 timers connect 1
 address-family ipv4 unicast
  network 10.0.20.0/24
EOF

# The provider: BIRD announces /24s from 20.0.0.0 on, and has one of their hosts.
mkdir "$work/isp"
{
    printf 'router id 192.0.2.1;\nprotocol device {}\nprotocol kernel { ipv4 { export where source = RTS_BGP; }; }\n'
    printf 'protocol static { ipv4;\n'
    for ((i = 0; i < ROUTES; i++)); do printf 'route %d.%d.%d.0/24 unreachable;\n' $((20 + i / 65536)) $((i / 256 % 256)) $((i % 256)); done
    printf '}\nprotocol bgp { local 192.0.2.1 as 65000; neighbor 192.0.2.2 as 65001; connect delay time 1; connect retry time 1;\n'
    printf ' error wait time 1, 2; ipv4 { import all; export where source = RTS_STATIC; next hop self; }; }\n'
} >"$work/isp/bird.conf"
run isp ip address add 20.0.7.1/32 dev lo
run isp bird -c "$work/isp/bird.conf" -s "$work/isp/ctl" -P "$work/isp/bird.pid"

all_there() { (($(run br0 "$MILLRACE" --json show vrfs | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["ipv4_routes"])') >= ROUTES)); }
within $((60 + ROUTES / 1000)) all_there
within 60 run h1 ping -c 1 -W 1 20.0.7.1
echo "h1 reaches the Internet: $ROUTES routes by BGP and FPM"
run br0 "$MILLRACE" show vrfs
run br0 "$MILLRACE" show routes border --to 20.0.7.1
