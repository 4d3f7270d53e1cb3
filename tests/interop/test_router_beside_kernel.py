"""The switch as a router beside a kernel that routes: the same `ip` commands in the namespace of each, then the same pings. What the
hosts see must be equal: an answer with its TTL, an ICMP error with its source, or nothing.

```
   h1 --- v10  router  v20 --- h2       once by Millrace (mr-r1, mr-blue, mr-r2), once by a kernel (mk-r1, mk-blue, mk-r2)
```
"""

import concurrent.futures
import json
import re
import subprocess
import time

import pytest

import namespaces
import test_router
from namespaces import inside
from switches import run, wait_for

pytestmark = test_router.pytestmark
# The time in s within which both must show the same, and the time that a ping waits for an answer.
BOUND_S, ANSWER_S = 60, 1
KERNEL = {"router": "mk-blue", "h1": "mk-r1", "h2": "mk-r2"}
MILLRACE = {"router": test_router.VRF, "h1": test_router.HOSTS[0], "h2": test_router.HOSTS[1]}
ROUTER_ADDRESSES = {"v10": ("10.0.10.1/24", "2001:db8:10::1/64"), "v20": ("10.0.20.1/24", "2001:db8:20::1/64")}
SETTINGS = {
    "net.ipv4.ip_forward": 1, "net.ipv6.conf.all.forwarding": 1, "net.ipv4.conf.all.rp_filter": 0, "net.ipv4.conf.default.rp_filter": 0,
    "net.ipv4.conf.v10.rp_filter": 0, "net.ipv4.conf.v20.rp_filter": 0, "net.ipv4.conf.all.send_redirects": 0,
    "net.ipv4.conf.default.send_redirects": 0, "net.ipv4.conf.v10.send_redirects": 0, "net.ipv4.conf.v20.send_redirects": 0,
    "net.ipv4.icmp_ratelimit": 0, "net.ipv6.icmp.ratelimit": 0, "net.ipv4.icmp_errors_use_inbound_ifaddr": 1,
}
LL2 = "fe80::ff:fe00:102"
# The commands of each case, by the place in which they run, and the pings of host h1.
CASES = {
    "nothing": ([], ["10.0.10.1", "10.0.20.1", "10.0.20.2", "2001:db8:10::1", "2001:db8:20::1", "2001:db8:20::2", "10.0.20.9", "192.0.2.1",
                     "2001:db8:99::1", "10.0.20.2 -t 1", "10.0.20.1 -t 1", "10.0.10.1 -t 1", "2001:db8:20::2 -t 1", "2001:db8:20::1 -t 1",
                     "10.0.20.2 -s 4000", "2001:db8:20::2 -s 4000", "10.0.20.2 -R", "10.0.20.255 -b", "10.0.20.0 -b", "240.0.0.1", "169.254.1.1",
                     "127.0.0.2 -I eth0", "ff05::1234", "2001:db8:20::", "2001:db8:20::9"]),
    "a route is replaced in place by each type": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "h2: ip addr add 2001:db8:99::1/128 dev lo",
        "router: ip route add 192.0.2.0/24 via 10.0.20.2", "router: ip -6 route add 2001:db8:99::/64 via 2001:db8:20::2"],
        ["192.0.2.1", "192.0.2.2", "2001:db8:99::1", "2001:db8:99::2"]),
    **{f"{kind} in place of a route": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "h2: ip addr add 2001:db8:99::1/128 dev lo",
        "router: ip route add 192.0.2.0/24 via 10.0.20.2", "router: ip -6 route add 2001:db8:99::/64 via 2001:db8:20::2",
        f"router: ip route replace {kind} 192.0.2.0/24", "router: ip -6 route del 2001:db8:99::/64", f"router: ip -6 route add {kind} 2001:db8:99::/64"],
        ["192.0.2.1", "192.0.2.2", "2001:db8:99::1", "2001:db8:99::2"]) for kind in ("unreachable", "blackhole", "prohibit", "throw")},
    "a default route beside a throw": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "h2: ip addr add 198.51.100.1/32 dev lo", "router: ip route add default via 10.0.20.2",
        "router: ip route add throw 192.0.2.0/24"], ["192.0.2.1", "198.51.100.1"]),
    "networks of two addresses": ([
        "h2: ip addr add 10.9.0.1/31 dev eth0", "h2: ip -6 addr add 2001:db8:9::1/127 dev eth0 nodad",
        "router: ip addr add 10.9.0.0/31 dev v20", "router: ip -6 addr add 2001:db8:9::/127 dev v20 nodad"],
        ["10.9.0.0", "10.9.0.1", "2001:db8:9::", "2001:db8:9::1", "10.9.0.2"]),
    "unnumbered": ([
        "h2: ip addr add 10.255.0.2/32 dev eth0", "router: ip addr add 10.255.0.1/32 dev v20", "router: ip route add 10.255.0.2/32 dev v20"],
        ["10.255.0.1", "10.255.0.2", "10.255.0.3"]),
    "a peer": (["h2: ip addr add 10.6.0.2/32 dev eth0", "router: ip addr add 10.6.0.1 peer 10.6.0.2/32 dev v20"], ["10.6.0.1", "10.6.0.2", "10.6.0.3"]),
    "a gateway behind a route of the link": ([
        "h2: ip addr add 172.31.0.1/32 dev eth0", "h2: ip addr add 192.0.2.1/32 dev lo", "router: ip route add 172.31.0.1 dev v20",
        "router: ip route add 192.0.2.0/24 via 172.31.0.1"], ["192.0.2.1", "172.31.0.1"]),
    "onlink": (["h2: ip addr add 172.31.0.1/32 dev eth0", "h2: ip addr add 192.0.2.1/32 dev lo",
                "router: ip route add 192.0.2.0/24 via 172.31.0.1 dev v20 onlink"], ["192.0.2.1", "192.0.2.2", "172.31.0.1"]),
    "a route of the link": (["h2: ip addr add 192.0.2.1/32 dev lo", "h2: ip addr add 2001:db8:99::1/128 dev eth0 nodad",
                             "router: ip route add 192.0.2.0/24 dev v20", "router: ip -6 route add 2001:db8:99::/64 dev v20"],
                            ["192.0.2.1", "192.0.2.2", "2001:db8:99::1", "2001:db8:99::2"]),
    "gateways of the link": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "h2: ip addr add 2001:db8:99::1/128 dev lo",
        f"router: ip -6 route add default via {LL2} dev v20", f"router: ip route add 192.0.2.0/24 via inet6 {LL2} dev v20"],
        ["192.0.2.1", "192.0.2.2", "2001:db8:99::1"]),
    "overlapping networks": ([
        "h1: ip addr add 10.0.20.130/32 dev eth0", "router: ip addr add 10.0.20.129/25 dev v10", "h2: ip addr add 10.0.20.200/32 dev eth0"],
        ["10.0.20.129", "10.0.20.2", "10.0.20.200", "10.0.20.131"]),
    "one network at two interfaces": ([
        "h1: ip addr add 10.7.0.11/32 dev eth0", "h2: ip addr add 10.7.0.12/32 dev eth0",
        "router: ip addr add 10.7.0.1/24 dev v20", "router: ip addr add 10.7.0.2/24 dev v10"], ["10.7.0.1", "10.7.0.2", "10.7.0.12"]),
    "one network at two interfaces, and the first goes": ([
        "h2: ip addr add 10.7.0.12/32 dev eth0", "router: ip addr add 10.7.0.1/24 dev v10", "router: ip addr add 10.7.0.2/24 dev v20",
        "router: ip addr del 10.7.0.1/24 dev v10"], ["10.7.0.1", "10.7.0.2", "10.7.0.12"]),
    "one address at two interfaces": ([
        "h2: ip addr add 10.8.0.12/32 dev eth0", "router: ip addr add 10.8.0.1/24 dev v20", "router: ip addr add 10.8.0.1/24 dev v10"],
        ["10.8.0.1", "10.8.0.12"]),
    "one address at two interfaces, and one goes": ([
        "h2: ip addr add 10.8.0.12/32 dev eth0", "router: ip addr add 10.8.0.1/24 dev v10", "router: ip addr add 10.8.0.1/24 dev v20",
        "router: ip addr del 10.8.0.1/24 dev v10"], ["10.8.0.1", "10.8.0.12"]),
    "no route of the prefix": (["h2: ip addr add 10.5.0.2/32 dev eth0", "router: ip addr add 10.5.0.1/24 dev v20 noprefixroute"], ["10.5.0.1", "10.5.0.2"]),
    "the primary address goes": ([
        "h2: ip addr add 10.4.0.12/32 dev eth0", "router: ip addr add 10.4.0.1/24 dev v20", "router: ip addr add 10.4.0.2/24 dev v20",
        "router: ip addr del 10.4.0.1/24 dev v20"], ["10.4.0.1", "10.4.0.2", "10.4.0.12"]),
    "metrics": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "h2: ip addr add 2001:db8:99::1/128 dev lo",
        "router: ip route add unreachable 192.0.2.0/24 metric 5", "router: ip route add 192.0.2.0/24 via 10.0.20.2 metric 4",
        "router: ip -6 route add unreachable 2001:db8:99::/64 metric 5", "router: ip -6 route add 2001:db8:99::/64 via 2001:db8:20::2 metric 4"],
        ["192.0.2.1", "2001:db8:99::1"]),
    "metrics, and the better route goes": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "h2: ip addr add 2001:db8:99::1/128 dev lo",
        "router: ip route add unreachable 192.0.2.0/24 metric 4", "router: ip route add 192.0.2.0/24 via 10.0.20.2 metric 5",
        "router: ip -6 route add unreachable 2001:db8:99::/64 metric 4", "router: ip -6 route add 2001:db8:99::/64 via 2001:db8:20::2 metric 5",
        "router: ip route del unreachable 192.0.2.0/24", "router: ip -6 route del unreachable 2001:db8:99::/64"], ["192.0.2.1", "2001:db8:99::1"]),
    "a type of service": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "router: ip route add 192.0.2.0/24 via 10.0.20.2", "router: ip route add unreachable 192.0.2.0/24 tos 0x10"],
        ["192.0.2.1"]),
    "the MTU of a route": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "h2: ip addr add 2001:db8:99::1/128 dev lo",
        "router: ip route add 192.0.2.0/24 via 10.0.20.2 mtu lock 1300", "router: ip -6 route add 2001:db8:99::/64 via 2001:db8:20::2 mtu 1300"],
        ["192.0.2.1 -M do -s 1400", "192.0.2.1 -s 1200", "2001:db8:99::1 -M do -s 1400", "2001:db8:99::1 -s 1200", "192.0.2.1 -M dont -s 1400"]),
    "local routes": (["router: ip route add local 192.0.2.0/24 dev lo", "router: ip -6 route add local 2001:db8:99::/64 dev lo",
                      "router: ip addr add 203.0.113.1/32 dev lo"], ["192.0.2.1", "192.0.2.200", "2001:db8:99::1", "2001:db8:99::77", "203.0.113.1"]),
    "other tables": (["h2: ip addr add 192.0.2.1/32 dev lo", "router: ip route add 192.0.2.0/24 via 10.0.20.2 table 100",
                      "router: ip route add unreachable 10.0.20.2/32 table 101"], ["192.0.2.1", "10.0.20.2"]),
    "a route of the table local": (["h2: ip addr add 192.0.2.1/32 dev lo", "router: ip route add 192.0.2.0/24 via 10.0.20.2 table local"], ["192.0.2.1"]),
    "a next-hop object is replaced": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "router: ip nexthop add id 1 via 10.0.20.99 dev v20", "router: ip route add 192.0.2.0/24 nhid 1",
        "router: ip nexthop replace id 1 via 10.0.20.2 dev v20"], ["192.0.2.1"]),
    "a next-hop object becomes a blackhole": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "router: ip nexthop add id 1 via 10.0.20.2 dev v20", "router: ip route add 192.0.2.0/24 nhid 1",
        "router: ip nexthop replace id 1 blackhole"], ["192.0.2.1"]),
    "a next-hop object goes": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "router: ip nexthop add id 1 via 10.0.20.2 dev v20", "router: ip route add 192.0.2.0/24 nhid 1",
        "router: ip nexthop del id 1"], ["192.0.2.1"]),
    "a group whose member goes": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "router: ip nexthop add id 1 via 10.0.20.2 dev v20", "router: ip nexthop add id 2 via 10.0.20.99 dev v20",
        "router: ip nexthop add id 3 group 1/2", "router: ip route add 192.0.2.0/24 nhid 3", "router: ip nexthop del id 2"], ["192.0.2.1"]),
    "a resilient group": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "h2: ip addr add 10.0.20.3/24 dev eth0", "router: ip nexthop add id 1 via 10.0.20.2 dev v20",
        "router: ip nexthop add id 2 via 10.0.20.3 dev v20", "router: ip nexthop add id 3 group 1/2 type resilient buckets 8",
        "router: ip route add 192.0.2.0/24 nhid 3"], ["192.0.2.1"]),
    "next hops of IPv6 that are added and deleted one by one": ([
        "h2: ip addr add 2001:db8:99::1/128 dev lo", "h2: ip -6 addr add 2001:db8:20::3/64 dev eth0 nodad",
        "router: ip -6 route add 2001:db8:99::/64 via 2001:db8:20::99", "router: ip -6 route append 2001:db8:99::/64 via 2001:db8:20::2",
        "router: ip -6 route del 2001:db8:99::/64 via 2001:db8:20::99"], ["2001:db8:99::1"]),
    "an interface that is down": (["router: ip link set v20 down"], ["10.0.20.2", "10.0.20.1", "10.0.10.1"]),
    "an interface that was down": (["h2: ip addr add 192.0.2.1/32 dev lo", "router: ip route add 192.0.2.0/24 via 10.0.20.2",
                                    "router: ip link set v20 down", "router: ip link set v20 up"], ["10.0.20.2", "192.0.2.1"]),
    "a smaller MTU": (["router: ip link set v20 mtu 1300", "h2: ip link set eth0 mtu 1300"], ["10.0.20.2 -M do -s 1400", "10.0.20.2 -M dont -s 1400", "2001:db8:20::2 -M do -s 1400"]),
    "an address that another has": ([
        "h2: ip -6 addr add 2001:db8:20::5/64 dev eth0 nodad", "router: ip -6 addr add 2001:db8:20::5/64 dev v20"], ["2001:db8:20::5", "2001:db8:20::2"]),
    "an address with a lifetime": (["router: ip addr add 10.3.0.1/24 dev v20 valid_lft 3 preferred_lft 2", "h2: ip addr add 10.3.0.2/32 dev eth0"],
                                   ["10.3.0.1", "10.3.0.2"]),
    "static neighbours": (["router: ip neigh replace 10.0.20.77 lladdr 02:00:00:00:01:02 nud permanent dev v20", "h2: ip addr add 10.0.20.77/32 dev lo",
                           "h2: sysctl -qw net.ipv4.conf.eth0.arp_ignore=2", "h2: ip addr add 10.0.20.78/32 dev lo"], ["10.0.20.77"]),
    "a macvlan": (["router: ip link add mv0 link v20 type macvlan mode bridge", "router: ip addr add 10.2.0.1/24 dev mv0", "router: ip link set mv0 up",
                   "h2: ip addr add 10.2.0.2/24 dev eth0"], ["10.2.0.1", "10.2.0.2"]),
    "an interface that is not the switch's": ([
        "router: ip link add vx type veth peer name vy netns {h2}", "router: ip addr add 10.11.0.1/24 dev vx", "router: ip link set vx up",
        "h2: ip addr add 10.11.0.2/24 dev vy", "h2: ip link set vy up", "router: ip link add bx type bridge", "router: ip addr add 10.12.0.1/24 dev bx",
        "router: ip link set bx up"], ["10.11.0.1", "10.12.0.1", "10.11.0.2"]),
    "a route that is appended": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "router: ip route add 192.0.2.0/24 via 10.0.20.2", "router: ip route append prohibit 192.0.2.0/24"],
        ["192.0.2.1"]),
    "a route that was appended": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "router: ip route add prohibit 192.0.2.0/24", "router: ip route append 192.0.2.0/24 via 10.0.20.2",
        "router: ip route del prohibit 192.0.2.0/24"], ["192.0.2.1"]),
    "a route that is prepended": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "router: ip route add prohibit 192.0.2.0/24", "router: ip route prepend 192.0.2.0/24 via 10.0.20.2"],
        ["192.0.2.1"]),
    "a route before a connected one": (["router: ip route prepend unreachable 10.0.20.0/24"], ["10.0.20.2", "10.0.20.1", "10.0.20.255 -b"]),
    "a route that is changed": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "router: ip route add 192.0.2.0/24 via 10.0.20.99", "router: ip route change 192.0.2.0/24 via 10.0.20.2"],
        ["192.0.2.1"]),
    "several next hops become one": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "h2: ip addr add 2001:db8:99::1/128 dev lo",
        "router: ip route add 192.0.2.0/24 nexthop via 10.0.20.98 nexthop via 10.0.20.99", "router: ip route replace 192.0.2.0/24 via 10.0.20.2",
        "router: ip -6 route add 2001:db8:99::/64 nexthop via 2001:db8:20::98 nexthop via 2001:db8:20::99",
        "router: ip -6 route replace 2001:db8:99::/64 via 2001:db8:20::2"], ["192.0.2.1", "2001:db8:99::1"]),
    "no carrier": (["h2: ip link set eth0 down"], ["10.0.20.1", "10.0.20.2", "2001:db8:20::1", "2001:db8:20::2"]),
    "no IPv6 at an interface": (["router: sysctl -qw net.ipv6.conf.v20.disable_ipv6=1"], ["2001:db8:20::1", "2001:db8:20::2", "10.0.20.2"]),
    "a source of another network": ([
        "h1: ip addr add 203.0.113.5/32 dev lo", "router: ip route add 203.0.113.0/24 via 10.0.10.2"], ["10.0.20.2 -I 203.0.113.5", "10.0.20.1 -I 203.0.113.5"]),
    "a source without a route back": (["h1: ip addr add 203.0.113.5/32 dev lo"], ["10.0.20.2 -I 203.0.113.5 -t 1", "10.0.20.1 -I 203.0.113.5"]),
    "long packets": ([], ["10.0.20.2 -s 20000", "10.0.20.1 -s 20000", "10.0.10.1 -s 20000", "2001:db8:20::2 -s 20000", "2001:db8:20::1 -s 20000"]),
    "a default route of each metric": ([
        "h2: ip addr add 198.51.100.1/32 dev lo", "h2: ip addr add 2001:db8:99::1/128 dev lo", "router: ip route add default via 10.0.20.2 metric 100",
        "router: ip route add unreachable default metric 4278198272", "router: ip -6 route add default via 2001:db8:20::2 metric 100",
        "router: ip -6 route add unreachable default metric 4278198272"], ["198.51.100.1", "2001:db8:99::1"]),
    "a default route of each metric, and the gateway's goes": ([
        "h2: ip addr add 198.51.100.1/32 dev lo", "h2: ip addr add 2001:db8:99::1/128 dev lo", "router: ip route add default via 10.0.20.2 metric 100",
        "router: ip route add unreachable default metric 4278198272", "router: ip -6 route add default via 2001:db8:20::2 metric 100",
        "router: ip -6 route add unreachable default metric 4278198272", "router: ip route del default metric 100",
        "router: ip -6 route del default metric 100"], ["198.51.100.1", "2001:db8:99::1"]),
    "a gateway on another interface than the route's": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "router: ip route add 192.0.2.0/24 via 10.0.20.2 dev v10 onlink"], ["192.0.2.1"]),
    "two gateways, of which one is down with its interface": ([
        "h2: ip addr add 192.0.2.1/32 dev lo", "router: ip link add mv0 link v10 type macvlan", "router: ip addr add 10.2.0.1/24 dev mv0",
        "router: ip link set mv0 up", "router: ip route add 192.0.2.0/24 nexthop via 10.0.20.2 nexthop via 10.2.0.9", "router: ip link set mv0 down"],
        ["192.0.2.1"]),
    "class E and the link-local network": ([
        "h2: ip addr add 240.0.0.1/32 dev lo", "h2: ip addr add 169.254.1.1/32 dev lo", "router: ip route add 240.0.0.0/4 via 10.0.20.2",
        "router: ip route add 169.254.0.0/16 via 10.0.20.2"], ["240.0.0.1", "169.254.1.1"]),
}
# Pings whose outcomes differ on purpose: that of Millrace, and the reason.
ON_PURPOSE = {
    "no carrier": {
        "10.0.20.2": ("error", "10.0.10.1", "Destination Net Unreachable"),
        "2001:db8:20::2": ("error", "2001:db8:10::1", "Destination unreachable: No route"),
    },  # The kernel asks for the neighbour on a link without a carrier, and answers three seconds later.
    "an interface that is not the switch's": {
        "10.11.0.2": ("error", "10.0.10.1", "Destination Host Unreachable"),
    },  # Nothing is forwarded behind the switch's back.
}


@pytest.fixture(scope="module")
def routers(tmp_path_factory):
    """Both routers, with their hosts."""
    with test_router.network(), namespaces.made(*KERNEL.values()), test_router.Router(tmp_path_factory.mktemp("m")) as switch:
        for number, interface in enumerate(ROUTER_ADDRESSES, 1):
            host = KERNEL[f"h{number}"]
            run("ip", "link", "add", interface, "netns", KERNEL["router"], "type", "veth", "peer", "name", "eth0", "netns", host,
                "address", test_router.mac(number))
            inside(KERNEL["router"], "ip", "link", "set", interface, "up")
            inside(host, "ip", "link", "set", "lo", "up")
            inside(host, "ip", "link", "set", "eth0", "up")
        inside(KERNEL["router"], "ip", "link", "set", "lo", "up")
        inside(MILLRACE["router"], "ip", "link", "set", "lo", "up")
        for name, value in SETTINGS.items():
            inside(KERNEL["router"], "sysctl", "-qw", f"{name}={value}")
        for world in (KERNEL, MILLRACE):
            reset(world)
        wait_for("Millrace routes", lambda: all(pings(MILLRACE, ["10.0.20.2", "2001:db8:20::2"]).values()))
        yield switch


def addresses_of(namespace):
    """The addresses of a namespace, as pairs of an interface and an address with its length."""
    found = set()
    for link in json.loads(inside(namespace, "ip", "-j", "addr")):
        for address in link.get("addr_info", []):
            if address.get("scope") != "link" and address.get("local") not in ("127.0.0.1", "::1"):
                peer = address.get("address") if address.get("family") == "inet" else None
                text = f"{address['local']} peer {peer}/{address['prefixlen']}" if peer else f"{address['local']}/{address['prefixlen']}"
                found.add((link["ifname"], text))
    return found


def batch(namespace, lines, *options):
    """Runs lines of `ip`, of which some may fail, in a namespace."""
    inside(namespace, "ip", *options, "-force", "-batch", "-", input="\n".join(lines) + "\n", check=False)


def reset(world):
    """Brings a router and its hosts back to where they began."""
    router = world["router"]
    flushes = [f"route flush table {table} proto boot" for table in ("main", "local", "100", "101")]
    batch(router, flushes, "-4")
    batch(router, flushes, "-6")
    batch(router, ["nexthop flush", *(f"link del {name}" for name in ("mv0", "vx", "bx"))])
    for place, wanted in (("router", ROUTER_ADDRESSES), ("h1", {"eth0": ("10.0.10.2/24", "2001:db8:10::2/64")}),
                          ("h2", {"eth0": ("10.0.20.2/24", "2001:db8:20::2/64")})):
        namespace = world[place]
        settings = ["net.ipv6.conf.v20.disable_ipv6=0"] if place == "router" else ["net.ipv4.conf.eth0.arp_ignore=0"]
        inside(namespace, "sysctl", "-qw", *settings, check=False)
        expected = {(name, address) for name, addresses in wanted.items() for address in addresses}
        lines = [f"link set {name} mtu 1500 up" for name in wanted]
        lines += [f"addr del {address} dev {name}" for name, address in addresses_of(namespace) - expected]
        lines += [f"addr replace {address} dev {name}" + (" nodad" if ":" in address else "") for name, address in expected]
        if place != "router":
            gateways = [address.partition("/")[0].removesuffix("2") + "1" for _, address in expected]
            lines += [f"route replace default via {gateway}" for gateway in gateways]
        batch(namespace, [*lines, "neigh flush all nud all"])
        batch(namespace, ["neigh flush all nud all"], "-6")


def outcome(world, ping):
    """What host h1 sees of a ping: an answer with its TTL, an error with its source, or None."""
    command = ["ip", "netns", "exec", world["h1"], "ping", "-n", "-c", "1", "-W", str(ANSWER_S), *ping.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    text = done.stdout + done.stderr
    answer = re.search(r"bytes from (\S+): icmp_seq=1 ttl=(\d+)", text)
    if answer:
        return ("answer", answer[1], int(answer[2]))
    error = re.search(r"^From (\S+?):? icmp_seq=1 (.*)$", text, re.M)
    if error:
        return ("error", error[1], error[2])
    local = re.search(r"^ping: (.*)$", text, re.M)
    return ("local", local[1]) if local else None


def pings(world, wanted):
    """The outcomes of pings at once."""
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return dict(zip(wanted, pool.map(lambda ping: outcome(world, ping), wanted)))


@pytest.mark.parametrize("case", CASES)
def test_hosts_see_of_the_router_what_they_see_of_the_kernel(routers, case):
    commands, wanted = CASES[case]
    try:
        for line in commands:
            place, _, command = line.partition(": ")
            for world in (KERNEL, MILLRACE):
                inside(world[place], *command.format(**world).split())
        until = time.monotonic() + BOUND_S
        on_purpose = ON_PURPOSE.get(case, {})
        for ping, expected in on_purpose.items():
            wait_for(f"the outcome of {ping}", lambda ping=ping, expected=expected: outcome(MILLRACE, ping) == expected)
        left = [ping for ping in wanted if ping not in on_purpose]
        while left:
            seen = [pings(world, left) for world in (KERNEL, MILLRACE)]
            differing = {ping: (seen[0][ping], seen[1][ping]) for ping in left if seen[0][ping] != seen[1][ping]}
            left = list(differing)
            assert not left or time.monotonic() < until, f"of the kernel, and of Millrace: {differing}"
    finally:
        for world in (KERNEL, MILLRACE):
            reset(world)
