#!/usr/bin/env bash
# Demonstrates the switch on one machine in a few minutes: `make demo`.
#
# Three hosts (network namespaces) share one Millrace bridge. The script measures traffic through it and through the kernel's
# bridge, installs flow entries with Open vSwitch's ovs-ofctl, and traces a packet. It leaves nothing behind; with KEEP=1 the
# lab keeps running, and the script prints commands to try in it.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly MILLRACE=${MILLRACE:-$PWD/target/demo/millrace} # millraced is in the same directory
readonly SECONDS_EACH=${SECONDS_EACH:-5} # duration of each iperf3 run
readonly SWITCH=tcp:127.0.0.1:6653       # address of the bridge inside the switch's namespace
readonly LABS=(demo bridge wan transfer) # names in examples/lab/{demo,linux-bridge,wan,transfer}.toml

# --- output -------------------------------------------------------------------------------------------
if [[ -t 1 ]]; then bold=$'\e[1m' dim=$'\e[2m' off=$'\e[0m'; else bold='' dim='' off=''; fi
doing='starting'
step() { doing=$1; printf '\n%s== %s%s\n' "$bold" "$1" "$off"; }
millrace() { "$MILLRACE" "$@"; }
show() { printf '%s$ %s%s\n' "$dim" "$*" "$off"; "$@"; } # prints a command, then runs it
fail() { printf '\ndemo: %s\n      %s\n' "$1" "$2" >&2; exit 1; }

down() { [[ ! -e /run/millrace-lab/$1 ]] || millrace lab down "$1" >/dev/null; } # removes a lab if it exists

# --- exit --------------------------------------------------------------------------------------------
end() {
    local status=$? word
    trap - EXIT INT TERM
    unset MILLRACE_LAB
    if ((status != 0)); then
        ((status == 130)) && word=interrupted || word=FAILED
        printf '\ndemo: %s while: %s\n' "$word" "$doing" >&2
        tail -n 15 /run/millrace-lab/demo/switch/br0/millraced.log 2>/dev/null | sed 's/^/      | /' >&2 || true
        printf '      If the reason is not above, `%s doctor` lists what this machine lacks.\n' "$MILLRACE" >&2
    fi
    down bridge || status=1
    down wan || status=1
    down transfer || status=1
    [[ -z ${transfer:-} ]] || rm -rf "$transfer"
    [[ -z ${prevented:-} ]] || rm -rf "$prevented"
    [[ -z ${compared:-} ]] || rm -rf "$compared"
    [[ -z ${taken:-} ]] || rm -rf "$taken"
    if [[ ${KEEP:-0} != 0 ]]; then
        how_to_play
        exit "$status"
    fi
    down demo || status=1
    if ls /run/netns/mr-{demo,bridge,wan,transfer}-* >/dev/null 2>&1 || grep -qE '/run/millrace-lab/(demo|bridge|wan|transfer)' /proc/mounts; then
        printf 'demo: resources are left in /run/netns or /proc/mounts: `%s lab down demo`\n' "$MILLRACE" >&2
        status=1
    elif ((status == 0)); then
        printf '\nAll removed: no process, namespace or mount is left. `make demo KEEP=1` keeps the lab.\n'
    fi
    exit "$status"
}

how_to_play() {
    cat <<EOF

${bold}The lab is up.${off} As root:
  alias millrace=$MILLRACE
  millrace lab status
  millrace lab run h1 ping 10.0.0.2
  millrace lab run h2 tcpdump -eni eth0
  millrace lab run br0 ovs-ofctl -O OpenFlow13 dump-flows $SWITCH
  millrace lab run br0 $MILLRACE show ports
  millrace lab run br0 $MILLRACE watch
  millrace lab down demo
EOF
}

# within SECONDS COMMAND…: repeats a command until it succeeds, for this time at most.
within() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || return 1
        sleep 0.05
    done
}
# Waits until the processes whose numbers are in these files have ended.
wait_for_end() {
    local file
    for file in "$@"; do within 20 eval "! kill -0 $(<"$file")" || return 1; done
}

# --- measurements ---------------------------------------------------------------------------------------
in_lab() { millrace lab run "$@"; }
reaches() { in_lab "$1" ping -q -c 2 -i 0.2 -W 1 "$2" >/dev/null; }
ofctl() { show millrace lab run br0 ovs-ofctl -O OpenFlow13 "$1" $SWITCH "${@:2}"; } # OpenFlow from outside of the switch

all_reach_all() {
    local from to
    for from in 1 2 3; do for to in 1 2 3; do
        ((from == to)) || reaches "h$from" "10.0.0.$to" ||
            fail "h$from does not reach 10.0.0.$to" "look at the port counters: $MILLRACE lab run br0 $MILLRACE show ports"
    done; done
    echo "h1, h2 and h3 reach each other"
}

# Prints the receiver's summary of an iperf3 run from h1 to h2, or from FROM to another host; the arguments are iperf3's.
iperf() {
    local said
    said=$(in_lab "${FROM:-h1}" timeout $((SECONDS_EACH + 20)) iperf3 -c 10.0.0.2 -t "$SECONDS_EACH" -f m "$@" 2>&1) &&
        grep receiver <<<"$said" ||
        fail "iperf3 failed in lab $MILLRACE_LAB: $(tail -n 1 <<<"$said")" "try it: $MILLRACE lab run h1 iperf3 -c 10.0.0.2"
}
rate_of() { awk '{ for (i = 2; i <= NF; i++) if ($i == "Mbits/sec") print $(i - 1) }' <<<"$1"; }

# measure LAB: measures from h1 to h2, and sets tcp, udp, lost (of UDP) and rtt.
declare -A tcp udp lost rtt
measure() {
    local lab=$1 line
    export MILLRACE_LAB=$lab
    in_lab h2 iperf3 -s -D
    until in_lab h2 ss -Hltn 'sport = 5201' | grep -q .; do sleep 0.05; done
    rtt[$lab]=$(in_lab h1 ping -q -c 200 -i 0.005 10.0.0.2 | awk -F/ '/^rtt/ { printf "%.3f", $5 }')
    echo "round-trip time ${rtt[$lab]} ms"
    line=$(iperf)
    tcp[$lab]=$(rate_of "$line")
    echo "TCP ${tcp[$lab]} Mbit/s"
    line=$(iperf -u -b 0 -l 1400)
    udp[$lab]=$(rate_of "$line")
    lost[$lab]=$(sed -E 's/.*\(([0-9.e+-]+)%\).*/\1/' <<<"$line")
    echo "UDP ${udp[$lab]} Mbit/s received, ${lost[$lab]} % lost"
}

# --- the demo -----------------------------------------------------------------------------------------------
if ((EUID != 0)); then
    command -v sudo >/dev/null || fail 'a lab needs root, and sudo is not installed' 'run this script as root'
    exec sudo --preserve-env=KEEP,MILLRACE,SECONDS_EACH "$PWD/demo/demo.sh"
fi
[[ -x $MILLRACE ]] || fail "there is no $MILLRACE" 'build it: make build-demo'
for tool in iperf3 ovs-ofctl tcpdump ping ss ethtool curl python3; do
    command -v "$tool" >/dev/null || fail "$tool is not installed" 'install all dependencies: make setup'
done
trap end EXIT
trap 'exit 130' INT TERM
for lab in "${LABS[@]}"; do down "$lab"; done

step 'Three hosts on one Millrace bridge'
show millrace lab up examples/lab/demo.toml
export MILLRACE_LAB=demo
all_reach_all

step 'Traffic from h1 to h2 through Millrace'
measure demo

step "The same through the kernel's bridge"
show millrace lab up examples/lab/linux-bridge.toml
measure bridge
millrace lab down bridge >/dev/null
export MILLRACE_LAB=demo

step 'Side by side'
row() { printf '%-34s %12s %12s\n' "$@"; }
row '' Millrace 'Linux bridge'
row 'TCP, Mbit/s' "${tcp[demo]}" "${tcp[bridge]}"
row 'UDP of 1400 bytes, Mbit/s' "${udp[demo]}" "${udp[bridge]}"
row 'UDP lost at full speed, %' "${lost[demo]}" "${lost[bridge]}"
row 'round-trip time, mean of 200, ms' "${rtt[demo]}" "${rtt[bridge]}"
echo "This compares ports on sockets of the kernel, which a program reads, with a bridge inside the kernel, on the cores that"
echo "the hosts use, too: what any host offers without special hardware. The next step compares switches on DPDK."

step 'Ten thousand flow entries beside Open vSwitch with DPDK, in the same minute'
if ! command -v ovs-vswitchd >/dev/null || ! millrace bench list >/dev/null 2>&1; then
    echo 'Not measured: it needs ovs-vswitchd and millrace-bench (`make build`). The command:'
    echo "  $MILLRACE bench forward --quick --case exact-10k"
else
    compared=$(mktemp -d)
    printf '%s$ %s%s\n' "$dim" "$MILLRACE bench forward --quick --case exact-10k --system millrace --system ovs-dpdk" "$off"
    if millrace bench forward --quick --case exact-10k --system millrace --system ovs-dpdk --out "$compared" >"$compared/said" 2>&1; then
        sed -n '/^case /,/^$/p' "$compared/said"
        echo 'Packets of 64 bytes of 10,000 flows, each with an entry of its own that rewrites a MAC address, on one core of each'
        echo 'switch, in turn. `spread` is over the rounds of this quick form; `millrace bench` has the long one.'
    else
        echo "Not measured: $(tail -n 1 "$compared/said")"
    fi
    rm -rf "$compared"
fi

step 'A flow entry from outside: h3 is dropped'
ofctl add-flow priority=0,actions=NORMAL
ofctl add-flow priority=100,in_port=3,actions=drop
! reaches h3 10.0.0.1 || fail 'h3 still reaches h1' "look at the flow entries: $MILLRACE lab run br0 ovs-ofctl -O OpenFlow13 dump-flows $SWITCH"
reaches h1 10.0.0.2 || fail 'h1 no longer reaches h2' 'only h3 should be dropped'
echo 'h3 reaches no host; h1 and h2 reach each other'
ofctl dump-flows
ofctl del-flows in_port=3
reaches h3 10.0.0.1 || fail 'h3 is still dropped' 'its entry should be deleted'
echo 'h3 reaches h1 again'

step 'A VXLAN between h1 and h2, as hosts of containers build it, through the ports of the bridge'
for host in 1 2; do
    in_lab "h$host" ip link add vx7 type vxlan id 7 local "10.0.0.$host" remote "10.0.0.$((3 - host))" dstport 4789 dev eth0
    in_lab "h$host" ip address add "10.7.0.$host/24" dev vx7
    in_lab "h$host" ip link set vx7 up
done
reaches h1 10.7.0.2 || fail 'h1 does not reach h2 through the VXLAN' "try it: $MILLRACE lab run h1 ping 10.7.0.2"
line=$(iperf -c 10.7.0.2)
echo "h1 reaches h2 as 10.7.0.2; TCP inside the VXLAN $(rate_of "$line") Mbit/s"
for host in 1 2; do in_lab "h$host" ip link del vx7; done

step 'A long, lossy path: the same streams over 0 ms, and over 50 ms with 0.5 % loss'
# Prints the number of frames from h1 that the emulator was offered, and the number that it dropped.
emulated() {
    in_lab wan.1 "$MILLRACE" --json wan show | python3 -c '
import json, sys
there = json.load(sys.stdin)[0]["directions"][0]
print(there["offered"], sum(drop["frames"] for drop in there["drops"]))'
}
# Fills in wan_rtt, wan_lost, wan_dropped and wan_tcp of a path: the arguments are its name and its settings.
declare -A wan_rtt wan_lost wan_dropped wan_tcp
measure_path() {
    local name=$1 line offered dropped all_offered all_dropped
    shift
    show millrace lab run wan.1 "$MILLRACE" wan set "$@"
    wan_rtt[$name]=$(in_lab h1 ping -q -c 20 -i 0.05 10.0.0.2 | awk -F/ '/^rtt/ { printf "%.2f", $5 }')
    read -r offered dropped < <(emulated)
    # A rate that two cores carry beside both hosts and the emulator: what is lost is then the path's.
    line=$(iperf -u -b 10M -l 1400)
    wan_lost[$name]=$(sed -E 's/.*\(([0-9.e+-]+)%\).*/\1/' <<<"$line")
    read -r all_offered all_dropped < <(emulated)
    wan_dropped[$name]=$(awk "BEGIN { printf \"%.2f\", 100 * ($all_dropped - $dropped) / ($all_offered - $offered) }")
    line=$(iperf -C cubic)
    wan_tcp[$name]=$(rate_of "$line")
}
show millrace lab up examples/lab/wan.toml
export MILLRACE_LAB=wan
in_lab h2 iperf3 -s -D
until in_lab h2 ss -Hltn 'sport = 5201' | grep -q .; do sleep 0.05; done
measure_path near --delay 0ms --loss none
measure_path far --delay 25ms --a-to-b 'loss=0.5%'
row '' 'a wire' '50 ms, 0.5 %'
row 'round trip asked, ms' 0 50
row 'round trip measured, mean of 20, ms' "${wan_rtt[near]}" "${wan_rtt[far]}"
row 'loss asked, %' 0 0.5
row 'dropped by the emulator, %' "${wan_dropped[near]}" "${wan_dropped[far]}"
row 'loss measured, UDP at 10 Mbit/s, %' "${wan_lost[near]}" "${wan_lost[far]}"
row 'TCP (CUBIC), Mbit/s' "${wan_tcp[near]}" "${wan_tcp[far]}"
show millrace lab run wan.1 "$MILLRACE" wan show
millrace lab down wan >/dev/null
export MILLRACE_LAB=demo

step 'One file to three sites over 50 ms and 1 % loss, beside TCP (CUBIC) on the same path'
readonly FILE_MIB=32
show millrace lab up examples/lab/transfer.toml
export MILLRACE_LAB=transfer
transfer=$(mktemp -d)
head -c $((FILE_MIB << 20)) /dev/urandom >"$transfer/data.bin"
in_lab r1 iperf3 -s -D
until in_lab r1 ss -Hltn 'sport = 5201' | grep -q .; do sleep 0.05; done
cubic=$(rate_of "$(FROM=h0 iperf -C cubic -c 10.0.0.1)")
tickets=()
for site in 1 2 3; do
    mkdir "$transfer/site$site"
    in_lab "r$site" "$MILLRACE" receive "$transfer/site$site" --once --listen "10.0.0.$site:7800" --address "10.0.0.$site" \
        --identity "$transfer/key$site" >"$transfer/ticket$site" 2>"$transfer/log$site" &
done
for site in 1 2 3; do
    until grep -q . "$transfer/ticket$site"; do sleep 0.05; done
    tickets+=("$(awk '{ print $NF }' "$transfer/ticket$site")")
done
echo "\$ millrace send data.bin mr1… mr1… mr1…"
XDG_CONFIG_HOME=$transfer/config in_lab h0 "$MILLRACE" send "$transfer/data.bin" "${tickets[@]}" --identity "$transfer/key0" 2>&1 | tee "$transfer/send" ||
    fail 'the file was not delivered' "see $transfer/log1"
same=0
for site in 1 2 3; do ! cmp -s "$transfer/data.bin" "$transfer/site$site/data.bin" || same=$((same + 1)); done
((same == 3)) || fail "only $same of 3 sites have the same file" 'this should not happen: every extent is verified'
sum=$(sed -nE 's/.*delivered and verified, .* in ([0-9.]+) s.*/\1/p' "$transfer/send" |
    awk -v bytes=$((FILE_MIB << 20)) '{ if ($1 > last) last = $1; n++ } END { printf "%.1f", n * bytes * 8 / last / 1e6 }')
row '' asked measured
row 'sites with the same, verified bytes' 3 $same
row 'link, Mbit/s; payload to all three' 200 "$sum"
row 'the same path by TCP (CUBIC), Mbit/s' '' "$cubic"
millrace lab down transfer >/dev/null
rm -rf "$transfer"
export MILLRACE_LAB=demo

step 'Flow entries in two tables: a VLAN tag pushed, then rewritten'
ofctl add-flow 'priority=100,in_port=1,icmp,actions=push_vlan:0x8100,set_field:4106->vlan_vid,goto_table:1'
ofctl add-flow 'table=1,dl_vlan=10,actions=set_field:4116->vlan_vid,output:2'
in_lab h1 ping -q -c 20 -i 0.2 -W 1 10.0.0.2 >/dev/null & # unanswered: h2 has no VLAN 20
seen=$(in_lab h2 timeout 5 tcpdump -c 1 -eni eth0 vlan 20 2>/dev/null) ||
    fail 'h2 has seen no packet in VLAN 20' "look at the flow entries: $MILLRACE lab run br0 ovs-ofctl -O OpenFlow13 dump-flows $SWITCH"
kill $! 2>/dev/null || true
printf 'h1 sends untagged packets; h2 receives VLAN 20:\n  %s\n' "$seen"

step 'One packet explained'
show millrace lab run br0 "$MILLRACE" trace br0 'in_port=1,icmp,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,nw_src=10.0.0.1,nw_dst=10.0.0.2'
ofctl del-flows in_port=1
ofctl del-flows table=1

step 'Two functions in front of h2: a firewall and a monitor'
chained=$(mktemp)
in_lab br0 "$MILLRACE" show config >"$chained"
cat >>"$chained" <<'EOF'

[[bridge.chain]]
name = "edge"
number = 100
far = 101
[[bridge.chain.hop]]
name = "fw"
function = "firewall"
settings = ["default=allow", "rule=deny icmp to 10.0.0.2"]
[[bridge.chain.hop]]
name = "watch"
function = "monitor"
EOF
show millrace lab run br0 "$MILLRACE" apply "$chained" -m 'a chain in front of h2'
rm -f "$chained"
# The ends of the chain are ports: 100 towards h1, 101 towards h2.
for way in 1,100 101,2 2,101 100,1; do
    ofctl add-flow "priority=100,in_port=${way%,*},actions=output:${way#*,}"
done
! reaches h1 10.0.0.2 || fail 'h1 still pings h2' "look at the counters of the functions: $MILLRACE lab run br0 $MILLRACE nf stats"
echo "the firewall drops h1's pings to h2; TCP passes:"
iperf
show millrace lab run br0 "$MILLRACE" nf list
show millrace lab run br0 "$MILLRACE" nf stats
show millrace lab run br0 "$MILLRACE" nf drain br0 edge fw
reaches h1 10.0.0.2 || fail 'h1 does not ping h2 past the drained firewall' "see: $MILLRACE lab run br0 $MILLRACE nf list"
echo 'with the firewall drained, h1 pings h2'
for port in 1 2 100 101; do ofctl del-flows "in_port=$port"; done

step 'An attack on the web server of h2, stopped by a rule'
prevented=$(mktemp -d)
mkdir "$prevented/www"
echo 'hello from h2' >"$prevented/www/index.html"
cat >"$prevented/local.rules" <<'EOF'
drop http any any -> $HOME_NET any (msg:"path traversal"; flow:established,to_server; http.uri.raw; content:"/../"; sid:1000001; rev:1;)
EOF
in_lab br0 "$MILLRACE" show config >"$prevented/config.toml"
cat >>"$prevented/config.toml" <<EOF
[[bridge.chain.hop]]
name = "ips"
function = "ips"
settings = ["rules=$prevented/local.rules", "home_net=10.0.0.2", "export=file:$prevented/eve.json"]
EOF
show cat "$prevented/local.rules"
show millrace lab run br0 "$MILLRACE" apply "$prevented/config.toml" -m 'intrusion prevention in front of h2'
for way in 1,100 101,2 2,101 100,1; do
    ofctl add-flow "priority=100,in_port=${way%,*},actions=output:${way#*,}"
done
in_lab h2 python3 -m http.server 80 --directory "$prevented/www" >/dev/null 2>&1 &
until in_lab h2 ss -Hltn 'sport = 80' | grep -q .; do sleep 0.05; done
page=$(in_lab h1 curl -s --max-time 5 http://10.0.0.2/index.html) ||
    fail 'the page of h2 is not reached' "see: $MILLRACE lab run br0 $MILLRACE nf stats"
echo "GET /index.html: $page"
! in_lab h1 curl -s --max-time 2 --path-as-is http://10.0.0.2/../../etc/passwd ||
    fail 'the attack passed' "see: $MILLRACE lab run br0 $MILLRACE nf stats"
echo 'GET /../../etc/passwd: blocked'
in_lab h1 curl -s --max-time 5 http://10.0.0.2/index.html >/dev/null ||
    fail 'other traffic is blocked, too' "see: $MILLRACE lab run br0 $MILLRACE nf stats"
echo 'GET /index.html: passes as before'
for ((i = 0; i < 100; i++)); do ! grep -q '"event_type":"alert"' "$prevented/eve.json" 2>/dev/null || break; sleep 0.05; done
show grep -m 1 '"event_type":"alert"' "$prevented/eve.json"
show millrace lab run br0 "$MILLRACE" nf list
for port in 1 2 100 101; do ofctl del-flows "in_port=$port"; done

step 'The controller dies: a standalone switch takes over'
taken=$(mktemp -d)
in_lab br0 "$MILLRACE" show config >"$taken/before.toml"
# An echo request each second, so that the switch knows soon: it waits three intervals, 15 s by default.
sed 's/^fail_mode = "standalone"/&\ncontrollers = [{ target = "tcp:127.0.0.1:6633", echo_interval_s = 1 }]/' "$taken/before.toml" >"$taken/with.toml"
in_lab br0 bash -c "echo \$\$ >$taken/pid; exec python3 demo/learning_controller.py 6633" >"$taken/log" 2>&1 &
show millrace lab run br0 "$MILLRACE" apply "$taken/with.toml" -m 'a controller'
within 20 grep -q connected "$taken/log" || fail 'the controller is not connected' "see: $MILLRACE lab run br0 $MILLRACE show controllers"
within 20 reaches h1 10.0.0.2 || fail 'h1 does not reach h2 through the controller' "see: $MILLRACE lab run br0 $MILLRACE show controllers"
echo 'h1 reaches h2: the controller forwards each packet'
ofctl dump-flows
kill -KILL "$(<"$taken/pid")"
killed=$(date +%s.%N)
! in_lab h1 ping -q -c 1 -W 1 10.0.0.3 >/dev/null || fail 'h1 reaches h3 at once' 'the entry of the controller should still drop its packets'
echo 'The controller is killed. Its entry still sends every packet to it:'
show millrace lab run br0 "$MILLRACE" show drops
within 30 reaches h1 10.0.0.3 || fail 'h1 does not reach h3' "see: $MILLRACE lab run br0 $MILLRACE show status"
echo "a new conversation, h1 to h3, passes $(awk "BEGIN { printf \"%.1f\", $(date +%s.%N) - $killed }") s after the kill; the entry is gone:"
ofctl dump-flows
show millrace lab run br0 "$MILLRACE" show status || true
show millrace lab run br0 "$MILLRACE" apply "$taken/before.toml" -m "without the controller" || true # as `show status`, it reports the drops
rm -rf "$taken"

step 'A transfer that is killed at both ends, whose temporary file is damaged, and that is resumed'
show millrace lab up examples/lab/transfer.toml
export MILLRACE_LAB=transfer
transfer=$(mktemp -d)
mkdir "$transfer/site1"
head -c $((FILE_MIB << 20)) /dev/urandom >"$transfer/data.bin"
# Starts the receiver at r1, with its process number in $transfer/receiver, and sets ticket.
start_receiver() {
    : >"$transfer/ticket"
    in_lab r1 bash -c "echo \$\$ >$transfer/receiver; exec '$MILLRACE' receive '$transfer/site1' --once --listen 10.0.0.1:7800 \
        --address 10.0.0.1 --identity '$transfer/key1'" >"$transfer/ticket" 2>"$transfer/log" &
    within 20 grep -q . "$transfer/ticket" || fail 'the receiver does not start' "see $transfer/log"
}
start_receiver
ticket=$(awk '{ print $NF }' "$transfer/ticket")
XDG_CONFIG_HOME=$transfer/config in_lab h0 bash -c "echo \$\$ >$transfer/sender; exec '$MILLRACE' send '$transfer/data.bin' '$ticket' \
    --identity '$transfer/key0' --rate 40Mbps" >"$transfer/send" 2>&1 &
# Prints the share of the file that the receiver has verified, in %, if it is 20 or more.
verified() { grep -oE '[2-9][0-9]\.[0-9] %' "$transfer/send" | tail -n 1 | grep .; }
within 60 verified || fail 'nothing arrives' "see $transfer/log"
kill -KILL "$(<"$transfer/sender")" "$(<"$transfer/receiver")"
wait_for_end "$transfer/sender" "$transfer/receiver"
[[ ! -e $transfer/site1/data.bin ]] || fail 'the file was complete before the kill' 'repeat the demo'
file=$(find "$transfer/site1" -type f -size +1M | head -n 1)
echo "Both ends are killed when $(verified) of $FILE_MIB MiB are verified at the receiver, and a program overwrites 90 bytes of them:"
show dd if=/dev/urandom of="$file" bs=90 seek=10000 count=1 conv=notrunc status=none
start_receiver
echo '$ millrace send data.bin mr1…'
XDG_CONFIG_HOME=$transfer/config in_lab h0 "$MILLRACE" send "$transfer/data.bin" "$ticket" --identity "$transfer/key0" 2>&1 | tee "$transfer/send" ||
    fail 'the file was not delivered' "see $transfer/log"
cmp "$transfer/data.bin" "$transfer/site1/data.bin" || fail 'the file differs' 'this should not happen: what an earlier run left is read again'
echo 'The 90 damaged bytes were found and sent again: the file at the receiver is the same, bit for bit.'
millrace lab down transfer >/dev/null
rm -rf "$transfer"
export MILLRACE_LAB=demo

step 'Two Millrace routers and a kernel router: OSPF and BGP by FRR, and a link that is cut under traffic'
if [[ -x /usr/lib/frr/zebra ]]; then
    MILLRACE_TARGET=$(dirname "$MILLRACE") PYTHON=target/venv/bin/python
    [[ -x $PYTHON ]] || PYTHON=python3
    export MILLRACE_TARGET
    printf '%s$ %s%s\n' "$dim" 'demo/routing.py' "$off"
    "$PYTHON" demo/routing.py || fail 'the routers do not converge' 'try it: demo/routing.py'
else
    echo 'Not shown: FRR is not installed (scripts/setup.sh routers).'
fi

step 'MPLS and QinQ over two workers: from one queue, then from a NIC that dispatches and marks, and at last marks wrongly'
show scripts/apart.sh python3 demo/marks.py "$(dirname "$MILLRACE")" || fail 'the device was not caught' 'try it: scripts/apart.sh python3 demo/marks.py target/demo'

step 'Done'
