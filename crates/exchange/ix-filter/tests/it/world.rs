//! An exchange with members, and a filter controller whose peers send encoded BGP messages.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeSet;

use millrace_bgp::flowspec::{Component, NumericField, NumericOperator, Pattern};
use millrace_bgp::rtr::Vrp;
use millrace_bgp::{
    FamilySet, FlowRule, Limits, MessageType, Nlri, PeerSettings, SessionSettings, Update, write_message,
};
use millrace_ix_filter::{FilterController, PeerInfo, Round, SessionKind, Settings, VrpState};
use millrace_ix_model::{
    AccountId, AccountKind, Actor, ConnectionKind, EndRole, Exchange, Filter, Operation, PortId, Prefix,
    ServiceKind, SwitchPort, TagType, Timestamp, VlanId, VlanRequest,
};
use millrace_types::{Dpid, PortNo, Time};

/// The first moment of each test.
const START: Timestamp = Timestamp::from_secs(1_795_000_000);

pub(crate) struct World {
    pub(crate) exchange: Exchange,
    pub(crate) controller: FilterController,
    pub(crate) now: Timestamp,
}

/// Returns the address of a member's router.
fn address(asn: u32) -> IpAddr {
    IpAddr::from([192, 0, 2, (asn % 100) as u8])
}

pub(crate) fn bgp(text: &str) -> millrace_bgp::Prefix {
    let prefix: Prefix = text.parse().unwrap();
    millrace_bgp::Prefix::new(prefix.address(), prefix.len()).unwrap()
}

/// Returns the attributes of a route: origin, path, and more.
fn attributes(path: &[u32], more: &[u8]) -> Vec<u8> {
    let count = path.len() as u8;
    let mut bytes = vec![0x40, 1, 1, 0, 0x40, 2, 2 + 4 * count, 2, count];
    bytes.extend(path.iter().flat_map(|asn| asn.to_be_bytes()));
    bytes.extend(more);
    bytes
}

impl World {
    /// Returns a world with a member for each of these AS numbers. Each member has an established session of its
    /// own.
    pub(crate) fn new(asns: &[u32]) -> World {
        let settings = Settings {
            extensions: true,
            ..Settings::default()
        };
        World::of(settings, false, asns)
    }

    /// Returns a world like [`World::new`] with these settings. With `has_registry`, it has a registry that
    /// has not answered yet.
    pub(crate) fn of(settings: Settings, has_registry: bool, asns: &[u32]) -> World {
        let mut world = World {
            exchange: Exchange::default(),
            controller: FilterController::new(settings, has_registry, Time::ZERO, START),
            now: START,
        };
        for asn in asns {
            world.order(vec![Operation::CreateAccount {
                name: format!("AS{asn}"),
                kind: AccountKind::Member,
                parent: None,
                asns: [*asn].into(),
                discoverable: true,
                as_set: None,
                external_ref: None,
            }]);
            let info = PeerInfo {
                kind: SessionKind::Member,
                account: Some(world.account(*asn)),
                asn: *asn,
            };
            world.put_peer(info);
            world.connect(*asn);
        }
        world
    }

    /// Adds a route server with this AS number and an established session.
    pub(crate) fn route_server(&mut self, asn: u32) {
        self.put_peer(PeerInfo {
            kind: SessionKind::RouteServer,
            account: None,
            asn,
        });
        self.connect(asn);
    }

    fn put_peer(&mut self, info: PeerInfo) {
        let asn = info.asn;
        let settings = PeerSettings {
            session: SessionSettings {
                local_as: 64_500,
                router_id: "192.0.2.1".parse().unwrap(),
                peer_as: asn,
                hold_secs: 0,
                families: FamilySet::ALL,
                add_path: false,
                enforce_first_as: info.kind == SessionKind::Member,
                restart_secs: 120,
            },
            limits: Limits::default(),
        };
        self.controller.put_peer(address(asn), info, settings, Time::ZERO);
    }

    fn connect(&mut self, asn: u32) {
        let mut capabilities = Vec::new();
        for (afi, safi) in [(1, 1), (2, 1), (1, 133), (2, 133)] {
            capabilities.extend([1, 4, 0, afi, 0, safi]);
        }
        capabilities.extend([65, 4]);
        capabilities.extend(asn.to_be_bytes());
        let mut open = vec![4, 0x5b, 0xa0, 0, 0, 192, 0, 2, 9, capabilities.len() as u8 + 2, 2];
        open.push(capabilities.len() as u8);
        open.extend(capabilities);
        self.controller
            .peer(address(asn))
            .unwrap()
            .accept(Time::ZERO)
            .unwrap();
        self.send(asn, MessageType::Open, &open);
        self.send(asn, MessageType::Keepalive, &[]);
    }

    pub(crate) fn send(&mut self, asn: u32, kind: MessageType, body: &[u8]) {
        let mut bytes = Vec::new();
        write_message(kind, body, &mut bytes);
        let peer = self.controller.peer(address(asn)).unwrap();
        peer.receive(&bytes, Time::ZERO);
        assert!(peer.is_open(), "{:?}", peer.state());
        self.controller.collect(address(asn));
    }

    fn update(&mut self, asn: u32, withdrawn: &[u8], attributes: &[u8], routes: &[u8]) {
        let mut body = (withdrawn.len() as u16).to_be_bytes().to_vec();
        body.extend(withdrawn);
        body.extend((attributes.len() as u16).to_be_bytes());
        body.extend(attributes);
        body.extend(routes);
        self.send(asn, MessageType::Update, &body);
    }

    /// Announces a prefix.
    pub(crate) fn announce(&mut self, asn: u32, prefix: &str, is_blackhole: bool) {
        let mut routes = Vec::new();
        bgp(prefix).write(&mut routes);
        let mut more = if prefix.contains(':') {
            let next_hop = [
                0x20,
                1,
                0xd,
                0xb8,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                (asn % 100) as u8,
            ];
            let value = [&[0, 2, 1, 16], &next_hop[..], &[0], &routes[..]].concat();
            routes.clear();
            [&[0x80, 14, value.len() as u8], &value[..]].concat()
        } else {
            vec![0x40, 3, 4, 192, 0, 2, (asn % 100) as u8]
        };
        if is_blackhole {
            more.extend([0xc0, 8, 4, 0xff, 0xff, 2, 0x9a]);
        }
        self.update(asn, &[], &attributes(&[asn], &more), &routes);
    }

    /// Announces an IPv4 prefix through a session, with an AS path and a next hop.
    pub(crate) fn announce_path(&mut self, session: u32, prefix: &str, path: &[u32], next_hop: [u8; 4]) {
        let mut routes = Vec::new();
        bgp(prefix).write(&mut routes);
        let more = [&[0x40, 3, 4], &next_hop[..]].concat();
        self.update(session, &[], &attributes(path, &more), &routes);
    }

    pub(crate) fn withdraw(&mut self, asn: u32, prefix: &str) {
        let mut routes = Vec::new();
        bgp(prefix).write(&mut routes);
        self.update(asn, &routes, &[], &[]);
    }

    /// Announces a rule that drops.
    pub(crate) fn flow(&mut self, asn: u32, rule: &FlowRule) {
        self.flow_at_rate(asn, rule, 0.0);
    }

    /// Announces a rule that limits the traffic to a rate, in bytes a second.
    pub(crate) fn flow_at_rate(&mut self, asn: u32, rule: &FlowRule, rate: f32) {
        let routes = [Nlri::Flowspec {
            path_id: 0,
            rule: rule.clone(),
        }];
        let afi = rule.afi() as u8;
        let value = [&[0, afi, 133, 0, 0], &Update::encode_routes(&routes, false)[..]].concat();
        // The length field of the attribute is two bytes long.
        let mut more = vec![0x90, 14];
        more.extend((value.len() as u16).to_be_bytes());
        more.extend(value);
        more.extend([0xc0, 16, 8, 0x80, 6, 0, 0]);
        more.extend(rate.to_be_bytes());
        self.update(asn, &[], &attributes(&[asn], &more), &[]);
    }

    pub(crate) fn account(&self, asn: u32) -> AccountId {
        let mut accounts = self.exchange.accounts.iter();
        *accounts
            .find(|(_, account)| account.asns.contains(&asn))
            .unwrap()
            .0
    }

    pub(crate) fn order(&mut self, operations: Vec<Operation>) {
        for operation in operations {
            self.exchange
                .apply(&Actor::system(), self.now, operation)
                .unwrap();
        }
    }

    /// Adds a connection of a member, with one end of each of `count` circuits.
    pub(crate) fn ends(&mut self, asn: u32, count: u16) {
        let account = Some(self.account(asn));
        let mut create = |operation| {
            let applied = self.exchange.apply(&Actor::system(), self.now, operation);
            applied.unwrap()
        };
        let name = "one".to_owned();
        let site = create(Operation::CreateSite { name: name.clone() })
            .first()
            .unwrap();
        let port = PortNo::from_raw(1);
        let switch = create(Operation::CreateSwitch {
            name: name.clone(),
            site,
            dpid: Dpid(1),
            ports: vec![SwitchPort {
                number: port,
                speed_mbps: 10_000,
            }],
        });
        let connection = create(Operation::CreateConnection {
            account,
            name,
            kind: ConnectionKind::Standalone,
            ports: vec![PortId {
                switch: switch.first().unwrap(),
                port,
            }],
            external_ref: None,
        })
        .first()
        .unwrap();
        for vlan in 1..=count {
            let service = create(Operation::CreateService {
                account,
                kind: ServiceKind::P2pVc,
                name: format!("circuit {vlan}"),
                peer: None,
                policy: None,
                networks: Vec::new(),
                external_ref: None,
            });
            create(Operation::ConfigureEnd {
                service: service.first().unwrap(),
                connection,
                vlan: VlanRequest::Dot1q {
                    vlan: VlanId::new(vlan).ok(),
                    ethertype: TagType::CTag,
                },
                capacity_mbps: Some(100),
                role: EndRole::Root,
                asns: BTreeSet::new(),
                external_ref: None,
            });
        }
    }

    /// Reconciles once, executes the resulting operations, and returns the round.
    pub(crate) fn reconcile(&mut self) -> Round {
        let round = self.controller.reconcile(&self.exchange, self.now);
        self.order(round.operations.clone());
        round
    }

    pub(crate) fn pass(&mut self, secs: u64) {
        self.now = self.now.after(Duration::from_secs(secs));
    }

    /// Replaces all ROAs: each permits an origin AS to announce a prefix and all more specific ones.
    pub(crate) fn roas(&mut self, payloads: &[(&str, u32)]) {
        let payloads = payloads.iter().map(|(prefix, asn)| Vrp {
            prefix: bgp(prefix),
            max_len: if prefix.contains(':') { 128 } else { 32 },
            asn: *asn,
        });
        self.controller.set_vrps(VrpState::Fresh(payloads.collect()));
    }

    pub(crate) fn filters(&self) -> Vec<&Filter> {
        self.exchange.filters.values().collect()
    }

    /// Returns the names of the states of all filters.
    pub(crate) fn states(&self) -> Vec<String> {
        let name = |filter: &Filter| {
            let state = serde_json::to_value(&filter.state).unwrap();
            state["name"].as_str().unwrap().to_owned()
        };
        self.filters().into_iter().map(name).collect()
    }
}

/// Returns a rule for UDP packets to a destination.
pub(crate) fn udp_to(destination: &str) -> FlowRule {
    let udp = NumericOperator {
        and: false,
        less: false,
        greater: false,
        equal: true,
        value: 17,
        size: 1,
    };
    FlowRule::new(
        bgp(destination).afi(),
        &[
            Component::Destination(Pattern::from(bgp(destination))),
            Component::Numeric(NumericField::Protocol, vec![udp]),
        ],
    )
    .unwrap()
}
