//! Tests of orders, and the exchange that they use.

mod circuits;
mod exchange;
mod filters;
mod limits;
mod numbers;
mod paths;

use std::collections::BTreeSet;

use millrace_types::{Dpid, Mac, PortNo};

use crate::*;

pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_795_470_000);

/// Returns a port of the inventory.
fn port(number: u32) -> SwitchPort {
    SwitchPort {
        number: PortNo::from_raw(number),
        speed_mbps: 10_000,
    }
}

fn at(switch: SwitchId, number: u32) -> PortId {
    PortId {
        switch,
        port: PortNo::from_raw(number),
    }
}

/// An exchange of two sites with a trunk, and three members with a connection at each site.
pub(crate) struct World {
    pub(crate) exchange: Exchange,
    pub(crate) operators: [Actor; 2],
    pub(crate) members: Vec<Actor>,
    pub(crate) connections: Vec<[ConnectionId; 2]>,
    trunk: TrunkId,
    policy: PolicyId,
}

fn actor(exchange: &mut Exchange, account: AccountId, name: &str, roles: &[Role]) -> Actor {
    let roles: BTreeSet<_> = roles.iter().copied().collect();
    let operation = Operation::CreateUser {
        name: name.to_owned(),
        account: Some(account),
        roles: roles.clone(),
        email: None,
        language: None,
    };
    let user = exchange
        .apply(&Actor::system(), NOW, operation)
        .unwrap()
        .first::<UserId>();
    Actor {
        user,
        account: Some(account),
        roles,
        proven_asns: BTreeSet::new(),
    }
}

fn account(exchange: &mut Exchange, name: &str, kind: AccountKind, parent: Option<AccountId>) -> AccountId {
    let operation = Operation::CreateAccount {
        name: name.to_owned(),
        kind,
        parent,
        asns: BTreeSet::new(),
        discoverable: true,
        as_set: None,
        external_ref: None,
    };
    exchange
        .apply(&Actor::system(), NOW, operation)
        .unwrap()
        .first()
        .unwrap()
}

impl World {
    pub(crate) fn new() -> World {
        let mut exchange = Exchange::default();
        let system = Actor::system();
        let mut switches = Vec::new();
        for number in 1..=2 {
            let name = format!("site {number}");
            let site = exchange
                .apply(&system, NOW, Operation::CreateSite { name })
                .unwrap()
                .first()
                .unwrap();
            let operation = Operation::CreateSwitch {
                name: format!("switch {number}"),
                site,
                dpid: Dpid(number),
                ports: (1..=20).chain([100, 101]).map(port).collect(),
            };
            switches.push(
                exchange
                    .apply(&system, NOW, operation)
                    .unwrap()
                    .first::<SwitchId>()
                    .unwrap(),
            );
        }
        let operation = Operation::CreateTrunk {
            name: "east".to_owned(),
            kind: TrunkKind::Vxlan,
            ends: [at(switches[0], 100), at(switches[1], 100)],
            cost: 10,
            capacity_mbps: 10_000,
            mtu: 9000,
            risk_group: None,
            contract_percent: 100,
        };
        let trunk = exchange.apply(&system, NOW, operation).unwrap().first().unwrap();
        let policy = LanPolicy::usual("peering");
        let policy = exchange
            .apply(&system, NOW, Operation::CreatePolicy { policy })
            .unwrap()
            .first()
            .unwrap();
        let operator = account(&mut exchange, "exchange", AccountKind::Exchange, None);
        let operators =
            ["ann", "bob"].map(|name| actor(&mut exchange, operator, name, &[Role::OperatorAdmin]));
        let (mut members, mut connections) = (Vec::new(), Vec::new());
        for (at_port, name) in (1..).zip(["a", "b", "c"]) {
            let id = account(&mut exchange, name, AccountKind::Member, None);
            members.push(actor(
                &mut exchange,
                id,
                &format!("{name}-tech"),
                &[Role::MemberTech],
            ));
            connections.push([0, 1].map(|site| {
                let operation = Operation::CreateConnection {
                    account: Some(id),
                    name: format!("{name}{site}"),
                    kind: ConnectionKind::Standalone,
                    ports: vec![at(switches[site], at_port)],
                    external_ref: None,
                };
                exchange
                    .apply(&Actor::system(), NOW, operation)
                    .unwrap()
                    .first()
                    .unwrap()
            }));
        }
        World {
            exchange,
            operators,
            members,
            connections,
            trunk,
            policy,
        }
    }

    pub(crate) fn apply(&mut self, actor: &Actor, operation: Operation) -> Result<Applied, Refusal> {
        self.exchange.apply(actor, NOW, operation)
    }

    /// Applies an order that must be refused, and checks that it changed nothing.
    fn refused(&mut self, actor: &Actor, operation: Operation) -> Refusal {
        let before = self.exchange.clone();
        let refusal = self.exchange.apply(actor, NOW, operation).unwrap_err();
        assert_eq!(self.exchange, before, "a refused order changes nothing");
        assert!(!refusal.message.is_empty());
        refusal
    }

    /// Orders a p2p circuit of the first member with the second.
    pub(crate) fn circuit(&mut self) -> ServiceId {
        let peer = self.members[1].account;
        let operation = order_p2p("path", peer);
        let actor = self.members[0].clone();
        self.apply(&actor, operation).unwrap().first().unwrap()
    }

    pub(crate) fn lan(&mut self) -> ServiceId {
        let operation = Operation::CreateService {
            account: None,
            kind: ServiceKind::ExchangeLan,
            name: "peering".to_owned(),
            peer: None,
            policy: Some(self.policy),
            networks: vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/64".parse().unwrap()],
            external_ref: None,
        };
        let operator = self.operators[0].clone();
        self.apply(&operator, operation).unwrap().first().unwrap()
    }
}

fn order_p2p(name: &str, peer: Option<AccountId>) -> Operation {
    Operation::CreateService {
        account: None,
        kind: ServiceKind::P2pVc,
        name: name.to_owned(),
        peer,
        policy: None,
        networks: Vec::new(),
        external_ref: None,
    }
}

pub(crate) fn tag(vlan: impl Into<Option<u16>>) -> VlanRequest {
    VlanRequest::Dot1q {
        vlan: vlan.into().map(|vlan| VlanId::new(vlan).unwrap()),
        ethertype: TagType::CTag,
    }
}

pub(crate) fn end(service: ServiceId, connection: ConnectionId, vlan: VlanRequest) -> Operation {
    Operation::ConfigureEnd {
        service,
        connection,
        vlan,
        capacity_mbps: Some(200),
        role: EndRole::Root,
        asns: BTreeSet::new(),
        external_ref: None,
    }
}
