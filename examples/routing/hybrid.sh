#!/usr/bin/env bash
# The recipe "OpenFlow and OSPF on one port" of docs/routing.md: flow entries decide what the router gets, and the router speaks
# OSPF by FRR with a neighbour on the same port. Run as root; MILLRACE names the program. It leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/../.."
source examples/routing/recipe.bash
start_recipe hybrid

sed -i -e '/^device = "kernel:ospf"/a vlan = 10' -e '/^device = "kernel:h2"/a vlan = 20' "$config"
cat >>"$config" <<'EOF'

[[vrf]]
name = "hybrid"
netns = "hybrid"

[[interface]]
name = "v10"
vrf = "hybrid"
bridge = "br0"
vlan = 10
mac = "02:00:00:00:aa:0a"
address = ["10.0.10.1/24"]

[[interface]]
name = "v20"
vrf = "hybrid"
bridge = "br0"
vlan = 20
mac = "02:00:00:00:aa:14"
address = ["10.0.20.1/24"]
EOF
run br0 "$MILLRACE" apply "$config" -m 'OpenFlow and OSPF'

# The bridge is secure: without an entry, a packet is dropped. OSPF, ARP and packets for the router go to NORMAL, which has the
# router; everything else on the same port is the controller's.
ofctl() { run br0 ovs-ofctl -O OpenFlow13 "$1" tcp:127.0.0.1:6653 "${@:2}"; }
ofctl add-flow 'priority=200,ip,nw_proto=89,actions=NORMAL'
ofctl add-flow 'priority=200,arp,actions=NORMAL'
ofctl add-flow 'priority=200,dl_dst=02:00:00:00:aa:0a,actions=NORMAL'
ofctl add-flow 'priority=200,dl_dst=02:00:00:00:aa:14,actions=NORMAL'
ofctl add-flow 'priority=300,in_port=1,tcp,tp_dst=80,actions=drop'

# FRR in the VRF's namespace, and the neighbour's.
ospf='ip ospf area 0
 ip ospf hello-interval 1
 ip ospf dead-interval 4'
frr hybrid zebra </dev/null
frr hybrid ospfd <<EOF
interface v10
 $ospf
interface v20
 ip ospf area 0
 ip ospf passive
router ospf
 ospf router-id 10.0.10.1
EOF
run ospf ip address add 10.99.0.1/32 dev lo
frr mr-hybrid-ospf zebra </dev/null
frr mr-hybrid-ospf ospfd <<EOF
interface eth0
 $ospf
interface lo
 ip ospf area 0
router ospf
 ospf router-id 10.0.10.2
EOF

within 90 run h2 ping -c 1 -W 1 10.99.0.1
echo 'h2 reaches the loopback of the neighbour by a route of OSPF'
ask hybrid 'show ip route ospf' | grep 10.99.0.1
run br0 "$MILLRACE" show routes hybrid --to 10.99.0.1
ofctl dump-flows | grep nw_proto=89
