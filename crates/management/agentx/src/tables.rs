//! The MIBs: IF-MIB (RFC 2863), BRIDGE-MIB (RFC 4188), Q-BRIDGE-MIB (RFC 4363), LLDP-MIB (IEEE 802.1AB-2005) and IP-FORWARD-MIB
//! (RFC 4292), from views of REST.

use std::collections::BTreeMap;
use std::net::IpAddr;

use millrace_api::view::{
    AdminState, Counters, Lag, LinkState, LldpNeighbour, MacEntry, Port, Route, RouteKind,
};

use crate::numbers::Numbers;
use crate::objects::{Objects, Value};
use crate::oid::Oid;

/// The number of LOCAL in OpenFlow 1.3, and in tables whose numbers have 16 bits.
const LOCAL: u32 = 0xffff_fffe;
const LOCAL_16: u32 = 65_534;

/// The state of the switch at one time.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The name of the machine.
    pub host: String,
    /// The bridge of BRIDGE-MIB and Q-BRIDGE-MIB, which know one.
    pub bridge: String,
    /// The datapath ID of that bridge, 16 hex digits.
    pub dpid: String,
    /// The ports of all bridges.
    pub ports: Vec<Port>,
    pub lags: Vec<Lag>,
    /// The MAC addresses that the bridge learned, and the time after which it forgets them, in seconds.
    pub macs: Vec<MacEntry>,
    pub ageing_s: u32,
    /// The routes of the first VRF.
    pub routes: Vec<Route>,
}

/// A row of IF-MIB.
struct Interface<'a> {
    name: String,
    alias: String,
    kind: i32,
    mac: Vec<u8>,
    is_up: bool,
    has_link: bool,
    speed: Option<u64>,
    mtu: u32,
    rx: &'a Counters,
    tx: &'a Counters,
    has_connector: bool,
}

/// ifType: ethernetCsmacd, and ieee8023adLag.
const ETHERNET: i32 = 6;
const LAG: i32 = 161;
/// TruthValue.
const TRUE: i32 = 1;
const FALSE: i32 = 2;

/// The subtrees with objects.
pub fn subtrees() -> Vec<Oid> {
    [interfaces(), if_mib(), bridge_mib(), lldp_mib(), ip_forward()].into()
}

fn interfaces() -> Oid {
    Oid::new(&[1, 3, 6, 1, 2, 1, 2])
}

fn if_mib() -> Oid {
    Oid::new(&[1, 3, 6, 1, 2, 1, 31])
}

fn bridge_mib() -> Oid {
    Oid::new(&[1, 3, 6, 1, 2, 1, 17])
}

fn lldp_mib() -> Oid {
    Oid::new(&[1, 0, 8802, 1, 1, 2])
}

fn ip_forward() -> Oid {
    Oid::new(&[1, 3, 6, 1, 2, 1, 4, 24])
}

/// Returns the name of a port among those of all bridges.
fn key(bridge: &str, port: &str) -> String {
    format!("{bridge}/{port}")
}

fn mac_bytes(text: &str) -> Vec<u8> {
    text.split(':')
        .filter_map(|part| u8::from_str_radix(part, 16).ok())
        .collect()
}

impl Snapshot {
    /// Returns the number of each interface, by `BRIDGE/PORT`.
    pub fn numbers(&self) -> Numbers {
        let ports = self.ports.iter().map(|port| key(&port.bridge, &port.name));
        let members = self
            .lags
            .iter()
            .flat_map(|lag| lag.members.iter().map(|member| key(&lag.bridge, &member.name)));
        Numbers::of(ports.chain(members))
    }

    /// Returns all objects.
    pub fn objects(&self) -> Objects {
        let numbers = self.numbers();
        let mut objects = Objects::default();
        self.if_mib(&numbers, &mut objects);
        self.bridge_mib(&numbers, &mut objects);
        self.lldp_mib(&mut objects);
        self.ip_forward(&numbers, &mut objects);
        objects
    }

    /// Returns the links that changed since an earlier time, each as the bindings of linkUp or linkDown (RFC 2863, section 6).
    pub fn link_changes(&self, before: &Snapshot) -> Vec<Vec<(Oid, Value)>> {
        let numbers = self.numbers();
        let earlier: BTreeMap<String, bool> = before
            .interfaces()
            .map(|(key, one)| (key, one.has_link))
            .collect();
        let changed = self
            .interfaces()
            .filter(|(key, one)| earlier.get(key).is_some_and(|link| *link != one.has_link));
        changed
            .filter_map(|(key, one)| {
                let index = numbers.get(&key)?;
                let trap = if one.has_link { 4 } else { 3 };
                let column = |column| interfaces().with(&[2, 1, column, index]);
                Some(vec![
                    (
                        Oid::new(&[1, 3, 6, 1, 6, 3, 1, 1, 4, 1, 0]),
                        Value::ObjectId(Oid::new(&[1, 3, 6, 1, 6, 3, 1, 1, 5, trap])),
                    ),
                    (column(1), Value::Integer(index as i32)),
                    (column(7), Value::Integer(up_down(one.is_up))),
                    (column(8), Value::Integer(up_down(one.has_link))),
                ])
            })
            .collect()
    }

    /// Returns the interfaces by `BRIDGE/PORT`: ports, and members of LAGs.
    fn interfaces(&self) -> impl Iterator<Item = (String, Interface<'_>)> {
        let ports = self.ports.iter().map(|port| {
            let is_lag = port.device.starts_with("lag:");
            let interface = Interface {
                name: port.name.clone(),
                alias: port.device.clone(),
                kind: if is_lag { LAG } else { ETHERNET },
                mac: mac_bytes(&port.mac),
                is_up: port.admin == AdminState::Up,
                has_link: port.link == LinkState::Up,
                speed: port.speed_bps,
                mtu: port.mtu,
                rx: &port.rx,
                tx: &port.tx,
                has_connector: !is_lag && !port.device.starts_with("tap:") && port.number != LOCAL,
            };
            (key(&port.bridge, &port.name), interface)
        });
        let members = self.lags.iter().flat_map(|lag| {
            lag.members.iter().map(|member| {
                let interface = Interface {
                    name: member.name.clone(),
                    alias: format!("{} of {}", member.device, lag.port),
                    kind: ETHERNET,
                    mac: Vec::new(),
                    is_up: true,
                    has_link: member.link == LinkState::Up,
                    speed: member.speed_bps,
                    mtu: 1500,
                    rx: &member.rx,
                    tx: &member.tx,
                    has_connector: true,
                };
                (key(&lag.bridge, &member.name), interface)
            })
        });
        ports.chain(members)
    }

    fn if_mib(&self, numbers: &Numbers, objects: &mut Objects) {
        let mut count = 0;
        for (key, one) in self.interfaces() {
            let Some(index) = numbers.get(&key) else { continue };
            count += 1;
            let (name, _) = key.split_once('/').unwrap_or((&key, ""));
            let speed = one.speed.unwrap_or(0);
            let columns = [
                (1, Value::Integer(index as i32)),
                (2, Value::text(&format!("{name} {}", one.name))),
                (3, Value::Integer(one.kind)),
                (4, Value::Integer(one.mtu as i32)),
                (5, Value::gauge32(speed)),
                (6, Value::OctetString(one.mac.clone())),
                (7, Value::Integer(up_down(one.is_up))),
                (8, Value::Integer(up_down(one.has_link))),
                (9, Value::TimeTicks(0)),
                (10, Value::counter32(one.rx.bytes)),
                (11, Value::counter32(one.rx.packets)),
                (13, Value::counter32(one.rx.drops)),
                (14, Value::counter32(one.rx.errors)),
                (16, Value::counter32(one.tx.bytes)),
                (17, Value::counter32(one.tx.packets)),
                (19, Value::counter32(one.tx.drops)),
                (20, Value::counter32(one.tx.errors)),
            ];
            for (column, value) in columns {
                objects.insert(interfaces().with(&[2, 1, column, index]), value);
            }
            let columns = [
                (1, Value::text(&one.name)),
                (6, Value::Counter64(one.rx.bytes)),
                (7, Value::Counter64(one.rx.packets)),
                (10, Value::Counter64(one.tx.bytes)),
                (11, Value::Counter64(one.tx.packets)),
                // linkUp and linkDown are sent.
                (14, Value::Integer(TRUE)),
                (15, Value::gauge32(speed / 1_000_000)),
                (16, Value::Integer(TRUE)),
                (17, Value::Integer(if one.has_connector { TRUE } else { FALSE })),
                (18, Value::text(&one.alias)),
                (19, Value::TimeTicks(0)),
            ];
            for (column, value) in columns {
                objects.insert(if_mib().with(&[1, 1, 1, column, index]), value);
            }
        }
        objects.insert(interfaces().with(&[1, 0]), Value::Integer(count));
        // The members of a LAG are below its port (RFC 2863, section 3.1.1).
        for lag in &self.lags {
            let Some(higher) = numbers.get(&key(&lag.bridge, &lag.port)) else {
                continue;
            };
            for member in &lag.members {
                if let Some(lower) = numbers.get(&key(&lag.bridge, &member.name)) {
                    objects.insert(if_mib().with(&[1, 2, 1, 3, higher, lower]), Value::Integer(1));
                }
            }
        }
    }

    /// Returns the ports of the bridge with their numbers in BRIDGE-MIB, which have 16 bits.
    fn bridge_ports(&self) -> impl Iterator<Item = (u32, &Port)> {
        let of_bridge = self.ports.iter().filter(|port| port.bridge == self.bridge);
        of_bridge.filter_map(|port| Some((base_port(port.number)?, port)))
    }

    fn bridge_mib(&self, numbers: &Numbers, objects: &mut Objects) {
        if self.bridge.is_empty() {
            return;
        }
        let base = bridge_mib();
        let address: Vec<u8> = (4..16)
            .step_by(2)
            .filter_map(|at| u8::from_str_radix(self.dpid.get(at..at + 2)?, 16).ok())
            .collect();
        let mut count = 0;
        for (number, port) in self.bridge_ports() {
            let Some(index) = numbers.get(&key(&port.bridge, &port.name)) else {
                continue;
            };
            count += 1;
            let row = |column: u32| base.with(&[1, 4, 1, column, number]);
            objects.insert(row(1), Value::Integer(number as i32));
            objects.insert(row(2), Value::Integer(index as i32));
            objects.insert(row(3), Value::ObjectId(Oid::new(&[0, 0])));
            objects.insert(row(4), Value::Counter32(0));
            objects.insert(row(5), Value::Counter32(0));
        }
        objects.insert(base.with(&[1, 1, 0]), Value::OctetString(address));
        objects.insert(base.with(&[1, 2, 0]), Value::Integer(count));
        // transparent-only
        objects.insert(base.with(&[1, 3, 0]), Value::Integer(2));
        objects.insert(base.with(&[4, 1, 0]), Value::Counter32(0));
        objects.insert(base.with(&[4, 2, 0]), Value::Integer(self.ageing_s as i32));
        let mut sizes: BTreeMap<u32, u32> = BTreeMap::new();
        for entry in &self.macs {
            let mac = mac_bytes(&entry.mac);
            let Some(port) = base_port(entry.port).filter(|_| mac.len() == 6) else {
                continue;
            };
            let index: Vec<u32> = mac.iter().map(|byte| u32::from(*byte)).collect();
            // dot1dTpFdbTable has an address once, dot1qTpFdbTable once for each VLAN.
            let row = |column: u32| base.with(&[4, 3, 1, column]).with(&index);
            objects.insert(row(1), Value::OctetString(mac.clone()));
            objects.insert(row(2), Value::Integer(port as i32));
            objects.insert(row(3), Value::Integer(3));
            let vlan = u32::from(entry.vlan);
            *sizes.entry(vlan).or_default() += 1;
            let row = |column: u32| base.with(&[7, 1, 2, 2, 1, column, vlan]).with(&index);
            objects.insert(row(2), Value::Integer(port as i32));
            objects.insert(row(3), Value::Integer(3));
        }
        for (vlan, size) in sizes {
            objects.insert(base.with(&[7, 1, 2, 1, 1, 2, vlan]), Value::Gauge32(size));
        }
    }

    fn lldp_mib(&self, objects: &mut Objects) {
        let base = lldp_mib();
        let ports = || {
            let of_ports = self
                .bridge_ports()
                .filter_map(|(number, port)| Some((number, &port.name, port.lldp.as_ref()?)));
            let of_bridge = self.lags.iter().filter(|lag| lag.bridge == self.bridge);
            let of_members = of_bridge
                .flat_map(|lag| &lag.members)
                .filter_map(|member| Some((member.number, &member.name, member.lldp.as_ref()?)));
            of_ports.chain(of_members)
        };
        if ports().next().is_none() {
            return;
        }
        // local: a name
        objects.insert(base.with(&[1, 3, 1, 0]), Value::Integer(7));
        objects.insert(base.with(&[1, 3, 2, 0]), Value::text(&self.host));
        objects.insert(base.with(&[1, 3, 3, 0]), Value::text(&self.host));
        objects.insert(base.with(&[1, 3, 4, 0]), Value::text("Millrace"));
        for (number, name, lldp) in ports() {
            let row = |column: u32| base.with(&[1, 3, 7, 1, column, number]);
            // interfaceName
            objects.insert(row(2), Value::Integer(5));
            objects.insert(row(3), Value::text(name));
            objects.insert(row(4), Value::text(name));
            for (at, neighbour) in (1..).zip(&lldp.neighbours) {
                neighbour_row(&base, number, at, neighbour, objects);
            }
        }
    }

    fn ip_forward(&self, numbers: &Numbers, objects: &mut Objects) {
        let base = ip_forward();
        let mut count = 0;
        for route in &self.routes {
            let Some((address, length)) = route.prefix.split_once('/') else {
                continue;
            };
            let (Ok(address), Ok(length)) = (address.parse::<IpAddr>(), length.parse::<u32>()) else {
                continue;
            };
            let hops: Vec<(Option<IpAddr>, u32)> = match route.nexthops.as_slice() {
                [] => vec![(None, 0)],
                hops => hops
                    .iter()
                    .map(|hop| {
                        let gateway = hop.gateway.as_ref().and_then(|text| text.parse().ok());
                        let index = hop
                            .interface
                            .as_ref()
                            .and_then(|name| self.router_interface(name, numbers));
                        (gateway, index.unwrap_or(0))
                    })
                    .collect(),
            };
            for (gateway, index) in hops {
                count += 1;
                let suffix = [
                    index_of(Some(address), address),
                    vec![length, 2, 0, 0],
                    index_of(gateway, address),
                ]
                .concat();
                let kind = match (route.kind, gateway) {
                    (RouteKind::Unicast, Some(_)) => 4,
                    (RouteKind::Unicast | RouteKind::Local, _) => 3,
                    (RouteKind::Blackhole, _) => 5,
                    (RouteKind::Unreachable | RouteKind::Prohibit, _) => 2,
                };
                let columns = [
                    (7, Value::Integer(index as i32)),
                    (8, Value::Integer(kind)),
                    (9, Value::Integer(protocol(&route.protocol))),
                    (10, Value::Gauge32(0)),
                    (11, Value::Gauge32(0)),
                    (
                        12,
                        Value::Integer(i32::try_from(route.metric).unwrap_or(i32::MAX)),
                    ),
                    (13, Value::Integer(-1)),
                    (14, Value::Integer(-1)),
                    (15, Value::Integer(-1)),
                    (16, Value::Integer(-1)),
                    // active
                    (17, Value::Integer(1)),
                ];
                for (column, value) in columns {
                    objects.insert(base.with(&[7, 1, column]).with(&suffix), value);
                }
            }
        }
        objects.insert(base.with(&[6, 0]), Value::Gauge32(count));
    }

    /// Returns the number of an interface of the router: of the port with its name, if there is one.
    fn router_interface(&self, name: &str, numbers: &Numbers) -> Option<u32> {
        let port = self.ports.iter().find(|port| port.name == name)?;
        numbers.get(&key(&port.bridge, &port.name))
    }
}

fn neighbour_row(base: &Oid, port: u32, at: u32, neighbour: &LldpNeighbour, objects: &mut Objects) {
    // The time filter is 0: all neighbours are current.
    let row = |column: u32| base.with(&[1, 4, 1, 1, column, 0, port, at]);
    let text = |text: &Option<String>| Value::text(text.as_deref().unwrap_or(""));
    let id = |text: &str| match mac_bytes(text) {
        mac if mac.len() == 6 && text.len() == 17 => (4, 3, Value::OctetString(mac)),
        _ => (7, 7, Value::text(text)),
    };
    let ((chassis_kind, _, chassis), (_, port_kind, port_id)) = (id(&neighbour.chassis), id(&neighbour.port));
    for (column, value) in [
        (4, Value::Integer(chassis_kind)),
        (5, chassis),
        (6, Value::Integer(port_kind)),
        (7, port_id),
        (8, text(&neighbour.port_description)),
        (9, text(&neighbour.system_name)),
        (10, text(&neighbour.system_description)),
    ] {
        objects.insert(row(column), value);
    }
}

/// Returns an address as parts of an index: its type, its length and its bytes. None is the zero address of the family.
fn index_of(address: Option<IpAddr>, family: IpAddr) -> Vec<u32> {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => (1, address.octets().to_vec()),
        IpAddr::V6(address) => (2, address.octets().to_vec()),
    };
    let (kind, bytes) = match (address, family) {
        (Some(address), _) => octets(address),
        (None, IpAddr::V4(_)) => (1, vec![0; 4]),
        (None, IpAddr::V6(_)) => (2, vec![0; 16]),
    };
    let mut parts = vec![kind, bytes.len() as u32];
    parts.extend(bytes.into_iter().map(u32::from));
    parts
}

/// IANAipRouteProtocol.
fn protocol(name: &str) -> i32 {
    match name {
        "kernel" | "boot" => 2,
        "static" => 3,
        "redirect" => 4,
        "rip" | "ripng" => 8,
        "isis" => 9,
        "ospf" | "ospf6" => 13,
        "bgp" => 14,
        "eigrp" => 16,
        _ => 1,
    }
}

fn up_down(is_up: bool) -> i32 {
    if is_up { 1 } else { 2 }
}

fn base_port(number: u32) -> Option<u32> {
    match number {
        LOCAL => Some(LOCAL_16),
        1..=65_533 => Some(number),
        _ => None,
    }
}
