#!/usr/bin/env bash
# The recipe "a campus switch" of docs/routing.md: two VLANs, routed between, with an access list, RSTP and LLDP, and no
# controller. Run as root; MILLRACE names the program. It leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/../.."
source examples/routing/recipe.bash
start_recipe campus

# The ports get VLANs, the bridge its protocols, and the VLANs interfaces with addresses.
sed -i -e '/^fail_mode/a lldp = {}\nrstp = {}' \
    -e '/^device = "kernel:h[12]"/a vlan = 10' -e '/^device = "kernel:h3"/a vlan = 20' "$config"
cat >>"$config" <<'EOF'

[[acl]]
name = "no-telnet"
rules = ["deny tcp,tp_dst=23", "permit ip"]

[[vrf]]
name = "campus"
netns = "campus"

[[interface]]
name = "v10"
vrf = "campus"
bridge = "br0"
vlan = 10
address = ["10.0.10.1/24"]
acl_in = "no-telnet"

[[interface]]
name = "v20"
vrf = "campus"
bridge = "br0"
vlan = 20
address = ["10.0.20.1/24"]
EOF
run br0 "$MILLRACE" apply "$config" -m 'a campus switch'

within 60 run h1 ping -c 1 -W 1 10.0.10.3
within 60 run h1 ping -c 1 -W 1 10.0.20.2
echo 'h1 reaches h2 in its VLAN, and h3 by the router'
run h1 ping -c 3 -i 0.2 10.0.20.2 | grep ttl=63
! run h1 timeout 2 bash -c 'exec 3<>/dev/tcp/10.0.20.2/23' 2>/dev/null
run br0 "$MILLRACE" show interfaces --drops | tee /dev/stderr | grep -q route_acl_in
echo 'telnet is denied, by name'
run br0 "$MILLRACE" show vrfs
run br0 "$MILLRACE" show routes campus --to 10.0.20.2
