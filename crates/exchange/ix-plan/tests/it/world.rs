//! Exchanges for tests, which are built by orders.

use std::collections::BTreeSet;

use millrace_ix_model::{
    AccountId, AccountKind, Actor, Applied, ConfigId, ConnectionId, ConnectionKind, EndRole, Exchange, Key,
    Operation, PortId, Refusal, ServiceId, ServiceKind, SwitchId, SwitchPort, TagType, Timestamp, TrunkKind,
    VlanConfig, VlanId, VlanRequest,
};
use millrace_types::{Dpid, PortNo, split_mix};

use crate::oracle::{Tag, join, tags_of};

pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_795_470_000);

/// A generator of pseudo-random numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        split_mix::next(&mut self.0) % bound
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// An exchange under construction.
pub(crate) struct World {
    pub(crate) exchange: Exchange,
    pub(crate) switches: Vec<SwitchId>,
}

impl World {
    /// Returns an exchange of this many switches with 40 ports each, and two trunks between each pair.
    pub(crate) fn new(switches: u32, kind: TrunkKind) -> World {
        World::joined(switches, |_, _| Some(kind))
    }

    /// Returns an exchange of this many switches with 40 ports each, and two trunks between each pair for which `kind` has an
    /// encapsulation.
    pub(crate) fn joined(switches: u32, mut kind: impl FnMut(usize, usize) -> Option<TrunkKind>) -> World {
        let mut world = World {
            exchange: Exchange::default(),
            switches: Vec::new(),
        };
        for number in 1..=switches {
            let site = world.create(Operation::CreateSite {
                name: format!("site {number}"),
            });
            let ports = (1..=40).chain(100..120).map(|port| SwitchPort {
                number: PortNo::from_raw(port),
                speed_mbps: 10_000,
            });
            let switch = world.create(Operation::CreateSwitch {
                name: format!("switch {number}"),
                site,
                dpid: Dpid(number.into()),
                ports: ports.collect(),
            });
            world.switches.push(switch);
        }
        let mut next = vec![100; switches as usize];
        for one in 0..switches as usize {
            for two in 0..one {
                let Some(kind) = kind(one, two) else {
                    continue;
                };
                for cost in [10, 20] {
                    let ends = [one, two].map(|at| {
                        next[at] += 1;
                        world.port(at, next[at] - 1)
                    });
                    let name = format!("{one} {two} {cost}");
                    world
                        .apply(Operation::CreateTrunk {
                            name,
                            kind,
                            ends,
                            cost,
                            capacity_mbps: 10_000,
                            mtu: 9000,
                            risk_group: None,
                            contract_percent: 100,
                        })
                        .unwrap();
                }
            }
        }
        world
    }

    pub(crate) fn port(&self, switch: usize, port: u32) -> PortId {
        PortId {
            switch: self.switches[switch],
            port: PortNo::from_raw(port),
        }
    }

    pub(crate) fn apply(&mut self, operation: Operation) -> Result<Applied, Refusal> {
        self.exchange.apply(&Actor::system(), NOW, operation)
    }

    /// Applies an operation, and returns the object that it creates.
    pub(crate) fn create<K: Key>(&mut self, operation: Operation) -> K {
        self.apply(operation).unwrap().first().unwrap()
    }

    pub(crate) fn account(&mut self, name: &str) -> AccountId {
        self.create(Operation::CreateAccount {
            name: name.to_owned(),
            kind: AccountKind::Member,
            parent: None,
            asns: BTreeSet::new(),
            discoverable: true,
            as_set: None,
            external_ref: None,
        })
    }

    pub(crate) fn connection(&mut self, account: AccountId, ports: Vec<PortId>) -> ConnectionId {
        let kind = if ports.len() == 1 {
            ConnectionKind::Standalone
        } else {
            ConnectionKind::LagStatic
        };
        self.create(Operation::CreateConnection {
            account: Some(account),
            name: format!("{}", ports[0]),
            kind,
            ports,
            external_ref: None,
        })
    }

    pub(crate) fn service(
        &mut self,
        account: AccountId,
        kind: ServiceKind,
        peer: Option<AccountId>,
    ) -> ServiceId {
        let name = format!("service {}", self.exchange.last_id);
        self.create(Operation::CreateService {
            account: Some(account),
            kind,
            name,
            peer,
            policy: None,
            networks: Vec::new(),
            external_ref: None,
        })
    }

    /// Shuts an end down.
    pub(crate) fn shut_down(&mut self, config: ConfigId) {
        self.apply(Operation::ShutDown {
            config,
            shut_down: true,
        })
        .unwrap();
    }

    pub(crate) fn end(
        &mut self,
        service: ServiceId,
        connection: ConnectionId,
        vlan: VlanRequest,
    ) -> Result<Applied, Refusal> {
        self.apply(Operation::ConfigureEnd {
            service,
            connection,
            vlan,
            capacity_mbps: None,
            role: EndRole::Root,
            asns: BTreeSet::new(),
            external_ref: None,
        })
    }
}

/// Returns the VLAN identifier with this number.
pub(crate) fn vid(raw: u16) -> VlanId {
    VlanId::new(raw).unwrap()
}

pub(crate) fn c_tag(vlan: u16) -> VlanRequest {
    VlanRequest::Dot1q {
        vlan: Some(vid(vlan)),
        ethertype: TagType::CTag,
    }
}

pub(crate) fn s_tag(vlan: u16) -> VlanRequest {
    VlanRequest::Dot1q {
        vlan: Some(vid(vlan)),
        ethertype: TagType::STag,
    }
}

pub(crate) fn qinq(outer: u16, inner: u16) -> VlanRequest {
    VlanRequest::Qinq {
        outer: Some(vid(outer)),
        inner: Some(vid(inner)),
        ethertype: TagType::STag,
    }
}

/// Returns an exchange of random circuits for a seed. Their ends are at random connections, some of which are
/// LAGs. The trunks have random encapsulations unless `kind` gives one.
pub(crate) fn random_circuits(seed: u64, kind: Option<TrunkKind>) -> World {
    let mut random = Random(seed);
    let drawn = *random.pick(&[TrunkKind::Vxlan, TrunkKind::STag]);
    let switches = 1 + random.below(3) as u32;
    // Half of the exchanges of three switches are chains, in which circuits between the ends pass through the middle, and
    // each hop has an encapsulation of its own.
    let is_chain = switches == 3 && random.below(2) == 0;
    let mut world = World::joined(switches, |one, two| {
        let own = if is_chain {
            *random.pick(&[TrunkKind::Vxlan, TrunkKind::STag])
        } else {
            drawn
        };
        (!is_chain || (one, two) != (2, 0)).then_some(kind.unwrap_or(own))
    });
    let mut next_port = vec![1; world.switches.len()];
    let mut members = Vec::new();
    for number in 0..6 {
        let account = world.account(&format!("member {number}"));
        let mut connections = Vec::new();
        for _ in 0..=random.below(3) {
            let at = random.below(world.switches.len() as u64) as usize;
            let ports = (0..*random.pick(&[1, 1, 1, 2, 3])).map(|_| {
                next_port[at] += 1;
                world.port(at, next_port[at] - 1)
            });
            let ports = ports.collect();
            connections.push(world.connection(account, ports));
        }
        members.push((account, connections));
    }
    for _ in 0..24 {
        let (owner, own) = random.pick(&members).clone();
        let (peer, others) = random.pick(&members).clone();
        // A circuit between two ends of one account has no other party.
        let invited = Some(peer).filter(|peer| *peer != owner);
        let service = world.service(owner, ServiceKind::P2pVc, invited);
        for connections in [&own, &others] {
            let vlan = match random.below(5) {
                0 => VlanRequest::Port,
                1 => s_tag(1 + random.below(60) as u16),
                2 => qinq(60 + random.below(4) as u16, 1 + random.below(4094) as u16),
                _ => c_tag(1 + random.below(60) as u16),
            };
            // Tags that are taken are refused; the service then has one end, and no frame passes.
            let _ = world.end(service, *random.pick(connections), vlan);
        }
    }
    world
}

/// The tags of frames that only a transparent circuit passes.
pub(crate) const TAGS_OF_WHOLE_PORT: [Tag; 2] = [(0x88a8, 5, 77), (0x8100, 1, 78)];

/// Returns a frame for a random place: mostly one that an end there expects, sometimes noise.
pub(crate) fn random_frame(world: &World, random: &mut Random) -> (SwitchId, u32, Vec<u8>) {
    let configs: Vec<_> = world.exchange.configs.values().collect();
    let config = random.pick(&configs);
    let port = *random.pick(&world.exchange.connections[&config.connection].ports);
    let pcp = random.below(8) as u8;
    let mut tags = tags_of(config.vlan, pcp);
    match random.below(8) {
        0 => tags = vec![],
        1 => tags = vec![(0x8100, pcp, 100 + random.below(3996) as u16)],
        2 => tags.push((0x8100, random.below(8) as u8, random.below(4095) as u16)),
        3 if config.vlan == VlanConfig::Port => tags = TAGS_OF_WHOLE_PORT.to_vec(),
        _ => {}
    }
    let mut addresses = random.bytes(12);
    if random.below(16) == 0 {
        addresses[..5].copy_from_slice(&[1, 0x80, 0xc2, 0, 0]);
    }
    let size = 46 + random.below(1455) as usize;
    let rest = [&[0x08, 0x00][..], &random.bytes(size)].concat();
    (port.switch, port.port.raw(), join(&addresses, &tags, &rest))
}
