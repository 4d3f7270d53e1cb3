//! Scenarios of orders.

use std::collections::BTreeSet;

use core::time::Duration;
use millrace_types::{Dpid, Mac, PortNo};

use crate::*;

const NOW: Timestamp = Timestamp::from_secs(1_795_470_000);

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
struct World {
    exchange: Exchange,
    operators: [Actor; 2],
    members: Vec<Actor>,
    connections: Vec<[ConnectionId; 2]>,
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
    fn new() -> World {
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

    fn apply(&mut self, actor: &Actor, operation: Operation) -> Result<Applied, Refusal> {
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
    fn circuit(&mut self) -> ServiceId {
        let peer = self.members[1].account;
        let operation = order_p2p("path", peer);
        let actor = self.members[0].clone();
        self.apply(&actor, operation).unwrap().first().unwrap()
    }

    fn lan(&mut self) -> ServiceId {
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

fn tag(vlan: impl Into<Option<u16>>) -> VlanRequest {
    VlanRequest::Dot1q {
        vlan: vlan.into().map(|vlan| VlanId::new(vlan).unwrap()),
        ethertype: TagType::CTag,
    }
}

fn end(service: ServiceId, connection: ConnectionId, vlan: VlanRequest) -> Operation {
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

#[test]
fn a_path_is_ordered_by_one_member_and_completed_by_the_other() {
    let mut world = World::new();
    let (a, b) = (world.members[0].clone(), world.members[1].clone());
    let service = world.circuit();
    assert_eq!(world.exchange.services[&service].consent, Consent::Pending);
    world
        .apply(&a, end(service, world.connections[0][0], tag(100)))
        .unwrap();
    assert_eq!(
        world.exchange.services[&service].wire_id, None,
        "one end needs no wire id"
    );
    world
        .apply(&b, end(service, world.connections[1][1], VlanRequest::Port))
        .unwrap();
    let found = &world.exchange.services[&service];
    assert_eq!(found.consent, Consent::Accepted);
    assert_eq!(found.wire_id.map(WireId::raw), Some(4096));
    // A third end has no place, whoever asks.
    let refusal = world.refused(&a, end(service, world.connections[0][1], tag(None)));
    assert_eq!(refusal.code, RefusalCode::Conflict);
    // Both see it, a third does not, in the same words as for one that is absent.
    assert!(world.exchange.may_read(&b, service.into()));
    let stranger = world.members[2].clone();
    let foreign = world.refused(
        &stranger,
        Operation::RenameService {
            service,
            name: "x".to_owned(),
        },
    );
    let absent = ServiceId(9999);
    let absent = world.refused(
        &stranger,
        Operation::RenameService {
            service: absent,
            name: "x".to_owned(),
        },
    );
    assert_eq!(
        foreign.message.replace(&service.to_string(), "sv-9999"),
        absent.message
    );
    assert_eq!(
        (foreign.code, absent.code),
        (RefusalCode::NotFound, RefusalCode::NotFound)
    );
}

#[test]
fn the_invited_member_may_refuse_and_then_nothing_can_be_configured() {
    let mut world = World::new();
    let service = world.circuit();
    let (a, b) = (world.members[0].clone(), world.members[1].clone());
    let refusal = world.refused(&a, Operation::Accept { service });
    assert_eq!(
        refusal.code,
        RefusalCode::Forbidden,
        "the one who ordered cannot consent for the other"
    );
    let reason = "wrong port".to_owned();
    world.apply(&b, Operation::Refuse { service, reason }).unwrap();
    let refusal = world.refused(&a, end(service, world.connections[0][0], tag(5)));
    assert!(refusal.message.contains("wrong port"), "{refusal}");
    assert_eq!(
        world.refused(&b, Operation::Accept { service }).code,
        RefusalCode::Conflict
    );
}

#[test]
fn a_vlan_of_a_connection_is_one_end_and_open_ones_are_chosen() {
    let mut world = World::new();
    let a = world.members[0].clone();
    let service = world
        .apply(&a, order_p2p("own", None))
        .unwrap()
        .first::<ServiceId>()
        .unwrap();
    let connection = world.connections[0][0];
    world.apply(&a, end(service, connection, tag(None))).unwrap();
    let refusal = world.refused(&a, end(service, connection, tag(2)));
    assert_eq!(
        (refusal.code, refusal.field.as_deref()),
        (RefusalCode::Conflict, Some("vlan"))
    );
    let refusal = world.refused(&a, end(service, connection, VlanRequest::Port));
    assert_eq!(
        refusal.field.as_deref(),
        Some("vlan"),
        "a whole port is no port with another end"
    );
    // Two VLANs of one port are a circuit; the second end has an index of its own.
    world.apply(&a, end(service, connection, tag(None))).unwrap();
    let ends: Vec<_> = world
        .exchange
        .ends(service)
        .map(|(_, config)| (config.vlan.outer().unwrap().raw(), config.index))
        .collect();
    let index = world.exchange.connections[&connection].index;
    assert_eq!((ends[0], ends[1].0), ((2, index), 3));
    assert!(
        world
            .exchange
            .connections
            .values()
            .all(|connection| connection.index != ends[1].1)
    );
    // A foreign connection cannot be used at all.
    let other = world
        .apply(&a, order_p2p("other", None))
        .unwrap()
        .first::<ServiceId>()
        .unwrap();
    let refusal = world.refused(&a, end(other, world.connections[1][0], tag(7)));
    assert_eq!(
        (refusal.code, refusal.field.as_deref()),
        (RefusalCode::NotFound, Some("connection"))
    );
}

#[test]
fn a_moved_end_has_a_new_generation_under_a_new_wire_id() {
    let mut world = World::new();
    let (a, b) = (world.members[0].clone(), world.members[1].clone());
    let service = world.circuit();
    world
        .apply(&a, end(service, world.connections[0][0], tag(100)))
        .unwrap();
    let config = world.exchange.ends(service).next().unwrap().0;
    world
        .apply(&b, end(service, world.connections[1][1], tag(200)))
        .unwrap();
    let before = world.exchange.services[&service].clone();
    world
        .apply(
            &a,
            Operation::MoveEnd {
                config,
                connection: world.connections[0][0],
                vlan: tag(101),
            },
        )
        .unwrap();
    let after = world.exchange.services[&service].clone();
    assert_ne!(before.wire_id, after.wire_id);
    assert_eq!(after.generation, before.generation + 1);
    let old = before.wire_id.unwrap().raw();
    let rest = |world: &World| {
        world.exchange.pools[&PoolKind::WireId]
            .released
            .get(&old)
            .copied()
    };
    assert_eq!(rest(&world), Some(Released::InSwitches));
    let numbers = vec![(PoolKind::WireId, old)];
    world
        .apply(&Actor::system(), Operation::ReportRulesGone { numbers })
        .unwrap();
    assert_eq!(rest(&world), Some(Released::FreeFrom(NOW.after(allocate::REST))));
    // A change of rate is no new path.
    world
        .apply(
            &a,
            Operation::SetRate {
                config,
                capacity_mbps: Some(300),
            },
        )
        .unwrap();
    assert_eq!(world.exchange.services[&service], after);
    // An end that moves to the other's switch needs no trunk any more.
    world
        .apply(
            &a,
            Operation::MoveEnd {
                config,
                connection: world.connections[0][1],
                vlan: tag(101),
            },
        )
        .unwrap();
    assert_eq!(world.exchange.services[&service].wire_id, None);
    let later = NOW.after(Duration::from_secs(61));
    world
        .exchange
        .apply(&Actor::system(), later, Operation::Expire)
        .unwrap();
    assert_eq!(rest(&world), None);
}

#[test]
fn a_service_key_is_used_once_and_within_its_bounds() {
    let mut world = World::new();
    let (a, c) = (world.members[0].clone(), world.members[2].clone());
    let service = world
        .apply(&a, order_p2p("keyed", None))
        .unwrap()
        .first::<ServiceId>()
        .unwrap();
    let secret = "k".repeat(22);
    let valid_until = NOW.after(Duration::from_secs(60));
    let key = |secret: &str, valid_until| Operation::CreateServiceKey {
        service,
        secret: secret.to_owned(),
        valid_until,
        vlans: Some((300, 310)),
        capacity_mbps: Some(500),
    };
    assert_eq!(
        world.refused(&a, key("short", valid_until)).field.as_deref(),
        Some("secret")
    );
    assert_eq!(
        world.refused(&a, key(&secret, NOW)).field.as_deref(),
        Some("valid_until")
    );
    world.apply(&a, key(&secret, valid_until)).unwrap();
    let connection = world.connections[2][1];
    let redeem = |vlan, capacity_mbps| Operation::RedeemServiceKey {
        secret: secret.clone(),
        connection,
        vlan,
        capacity_mbps,
        asns: BTreeSet::new(),
    };
    assert_eq!(
        world.refused(&c, redeem(tag(299), Some(5))).field.as_deref(),
        Some("vlan")
    );
    assert_eq!(
        world.refused(&c, redeem(tag(300), Some(501))).field.as_deref(),
        Some("capacity_mbps")
    );
    assert_eq!(
        world.refused(&c, redeem(tag(300), None)).field.as_deref(),
        Some("capacity_mbps")
    );
    assert_eq!(
        world
            .exchange
            .apply(&c, valid_until, redeem(tag(300), Some(5)))
            .unwrap_err()
            .code,
        RefusalCode::NotFound
    );
    world.apply(&c, redeem(tag(None), Some(500))).unwrap();
    let (_, config) = world.exchange.ends(service).next().unwrap();
    assert_eq!(config.vlan.outer().unwrap().raw(), 300);
    assert_eq!(world.exchange.services[&service].peer, c.account);
    assert_eq!(
        world.refused(&c, redeem(tag(301), Some(5))).code,
        RefusalCode::NotFound,
        "once"
    );
}

#[test]
fn a_router_is_swapped_with_a_second_address_that_ends_within_a_day() {
    let mut world = World::new();
    let a = world.members[0].clone();
    let lan = world.lan();
    world
        .apply(&a, end(lan, world.connections[0][0], VlanRequest::Port))
        .unwrap();
    let config = world.exchange.ends(lan).next().unwrap().0;
    let mac = |last, valid_until| Operation::AddMac {
        config,
        address: Mac([2, 0, 0, 0, 0, last]),
        valid_from: None,
        valid_until,
    };
    let old = world.apply(&a, mac(1, None)).unwrap().first::<MacId>().unwrap();
    let refusal = world.refused(&a, mac(2, None));
    assert!(refusal.message.contains("24 hours"), "{refusal}");
    let day_end = NOW.after(Duration::from_secs(24 * 3600));
    let tomorrow = Some(day_end);
    world
        .apply(
            &a,
            Operation::SetMacEnd {
                mac: old,
                valid_until: tomorrow,
            },
        )
        .unwrap();
    world.apply(&a, mac(2, None)).unwrap();
    assert_eq!(
        world.refused(&a, mac(3, tomorrow)).code,
        RefusalCode::Conflict,
        "one more, not two"
    );
    world
        .exchange
        .apply(&Actor::system(), day_end, Operation::Expire)
        .unwrap();
    let left: Vec<_> = world.exchange.macs.values().map(|mac| mac.address).collect();
    assert_eq!(left, [Mac([2, 0, 0, 0, 0, 2])]);
}

#[test]
fn an_end_leaves_quarantine_after_its_clean_minutes_or_by_an_operator_with_a_reason() {
    let mut world = World::new();
    let (a, operator) = (world.members[0].clone(), world.operators[0].clone());
    let lan = world.lan();
    for connection in world.connections[0] {
        world.apply(&a, end(lan, connection, VlanRequest::Port)).unwrap();
    }
    let ends: Vec<_> = world.exchange.ends(lan).map(|(id, _)| id).collect();
    let minutes = |count: u64| NOW.after(Duration::from_secs(count * 60));
    let mut report = |at, clean| {
        let operation = Operation::ReportQuarantine {
            config: ends[0],
            clean,
        };
        world.exchange.apply(&Actor::system(), at, operation).unwrap();
        world.exchange.configs[&ends[0]].quarantine.clone()
    };
    assert_eq!(
        report(minutes(14), true),
        Quarantine::Running { clean_since: NOW }
    );
    assert_eq!(
        report(minutes(14), false),
        Quarantine::Running {
            clean_since: minutes(14)
        }
    );
    assert_eq!(
        report(minutes(28), true),
        Quarantine::Running {
            clean_since: minutes(14)
        }
    );
    assert_eq!(report(minutes(29), true), Quarantine::Passed);
    let waive = |reason: &str| Operation::WaiveQuarantine {
        config: ends[1],
        reason: reason.to_owned(),
    };
    assert_eq!(world.refused(&a, waive("please")).code, RefusalCode::Forbidden);
    assert_eq!(
        world.refused(&operator, waive(" ")).field.as_deref(),
        Some("reason")
    );
    world.apply(&operator, waive("route server")).unwrap();
    assert!(world.exchange.configs[&ends[1]].quarantine.is_over());
}

#[test]
fn a_lan_and_a_foreign_lock_need_two_people() {
    let mut world = World::new();
    let [ann, bob] = world.operators.clone();
    let a = world.members[0].clone();
    let lan = world.lan();
    let delete = Operation::Delete { target: lan.into() };
    let approval = world
        .apply(&ann, delete.clone())
        .unwrap()
        .first::<ApprovalId>()
        .unwrap();
    assert_eq!(
        world.exchange.services[&lan].state,
        state::CommercialState::Requested
    );
    assert_eq!(
        world.refused(&ann, Operation::Approve { approval }).code,
        RefusalCode::Forbidden
    );
    assert_eq!(world.refused(&ann, delete).code, RefusalCode::Conflict);
    assert_eq!(
        world.refused(&a, Operation::Approve { approval }).code,
        RefusalCode::NotFound
    );
    world.apply(&bob, Operation::Approve { approval }).unwrap();
    assert_eq!(
        world.exchange.services[&lan].state,
        state::CommercialState::DecommissionRequested
    );

    let service = world.circuit();
    let target = service.into();
    world.apply(&a, Operation::Lock { target }).unwrap();
    assert_eq!(
        world.refused(&a, Operation::Delete { target }).code,
        RefusalCode::Locked
    );
    let approval = world
        .apply(&bob, Operation::Unlock { target })
        .unwrap()
        .first::<ApprovalId>()
        .unwrap();
    assert_eq!(
        world.refused(&ann, Operation::Delete { target }).code,
        RefusalCode::Locked
    );
    world.apply(&ann, Operation::Approve { approval }).unwrap();
    assert_eq!(world.exchange.services[&service].locked_by, None);
    world.apply(&a, Operation::Delete { target }).unwrap();
}

#[test]
fn a_deleted_service_keeps_its_numbers_until_its_rules_are_gone() {
    let mut world = World::new();
    let (a, b) = (world.members[0].clone(), world.members[1].clone());
    let service = world.circuit();
    world
        .apply(&a, end(service, world.connections[0][0], tag(100)))
        .unwrap();
    world
        .apply(&b, end(service, world.connections[1][1], tag(100)))
        .unwrap();
    let index = world.exchange.services[&service].index;
    world
        .apply(
            &a,
            Operation::Delete {
                target: service.into(),
            },
        )
        .unwrap();
    assert_eq!(world.exchange.ends(service).count(), 2);
    world
        .apply(&Actor::system(), Operation::ReportRemoved { service })
        .unwrap();
    assert_eq!(
        (
            world.exchange.ends(service).count(),
            world.exchange.services.len()
        ),
        (0, 0)
    );
    let index_of_next = |world: &mut World, at| {
        let actor = world.members[0].clone();
        let name = format!("next {}", world.exchange.last_id);
        let applied = world.exchange.apply(&actor, at, order_p2p(&name, None)).unwrap();
        world.exchange.services[&applied.first::<ServiceId>().unwrap()].index
    };
    assert_ne!(index_of_next(&mut world, NOW), index, "the number rests");
    assert_eq!(index_of_next(&mut world, NOW.after(allocate::REST)), index);
}

#[test]
fn references_are_unique_in_an_account_and_names_are_names() {
    let mut world = World::new();
    let (a, b) = (world.members[0].clone(), world.members[1].clone());
    let with_ref = |name: &str| Operation::CreateService {
        account: None,
        kind: ServiceKind::P2pVc,
        name: name.to_owned(),
        peer: None,
        policy: None,
        networks: Vec::new(),
        external_ref: Some("order 1".to_owned()),
    };
    world.apply(&a, with_ref("one")).unwrap();
    assert_eq!(
        world.refused(&a, with_ref("two")).field.as_deref(),
        Some("external_ref")
    );
    world.apply(&b, with_ref("one")).unwrap();
    for name in ["", " x", "x\n", &"x".repeat(101)] {
        assert_eq!(
            world.refused(&a, order_p2p(name, None)).field.as_deref(),
            Some("name"),
            "{name:?}"
        );
    }
    assert_eq!(
        world.refused(&a, order_p2p("one", None)).code,
        RefusalCode::Conflict
    );
}

#[test]
fn the_last_trunk_under_a_service_stays() {
    let mut world = World::new();
    let [ann, bob] = world.operators.clone();
    let (a, b) = (world.members[0].clone(), world.members[1].clone());
    let service = world.circuit();
    world
        .apply(&a, end(service, world.connections[0][0], tag(100)))
        .unwrap();
    world
        .apply(&b, end(service, world.connections[1][1], tag(100)))
        .unwrap();
    let target = world.trunk.into();
    let approval = world
        .apply(&ann, Operation::Delete { target })
        .unwrap()
        .first::<ApprovalId>()
        .unwrap();
    assert_eq!(
        world.refused(&bob, Operation::Approve { approval }).code,
        RefusalCode::Conflict
    );
    world
        .apply(
            &ann,
            Operation::DrainTrunk {
                trunk: world.trunk,
                drained: true,
            },
        )
        .unwrap();
    assert_eq!(
        world
            .refused(
                &a,
                Operation::DrainTrunk {
                    trunk: world.trunk,
                    drained: false
                }
            )
            .code,
        RefusalCode::NotFound
    );
}

#[test]
fn an_exchange_is_read_back_from_its_json() {
    let mut world = World::new();
    let (a, b) = (world.members[0].clone(), world.members[1].clone());
    let service = world.circuit();
    world
        .apply(&a, end(service, world.connections[0][0], tag(100)))
        .unwrap();
    world
        .apply(&b, end(service, world.connections[1][1], VlanRequest::Port))
        .unwrap();
    let lan = world.lan();
    world
        .apply(
            &world.operators[0].clone(),
            Operation::Delete { target: lan.into() },
        )
        .unwrap();
    let text = serde_json::to_string(&world.exchange).unwrap();
    assert_eq!(serde_json::from_str::<Exchange>(&text).unwrap(), world.exchange);
    let operation =
        r#"{"operation":"configure_end","service":"sv-1","connection":"cn-2","vlan":{"type":"dot1q"}}"#;
    let operation: Operation = serde_json::from_str(operation).unwrap();
    assert_eq!(operation.kind(), OperationKind::ConfigureEnd);
}

#[test]
fn a_reseller_acts_for_accounts_below_its_own_only() {
    let mut world = World::new();
    let reseller = account(&mut world.exchange, "reseller", AccountKind::Reseller, None);
    let child = account(&mut world.exchange, "child", AccountKind::Member, Some(reseller));
    let actor = actor(&mut world.exchange, reseller, "rae", &[Role::Reseller]);
    let order = |account| Operation::CreateService {
        account: Some(account),
        kind: ServiceKind::P2pVc,
        name: "for another".to_owned(),
        peer: None,
        policy: None,
        networks: Vec::new(),
        external_ref: None,
    };
    world.apply(&actor, order(child)).unwrap();
    let foreign = world.members[0].account.unwrap();
    assert_eq!(world.refused(&actor, order(foreign)).code, RefusalCode::NotFound);
    let new = |kind, parent| Operation::CreateAccount {
        name: "grandchild".to_owned(),
        kind,
        parent: Some(parent),
        asns: BTreeSet::new(),
        discoverable: false,
        as_set: None,
        external_ref: None,
    };
    assert_eq!(
        world.refused(&actor, new(AccountKind::Exchange, reseller)).code,
        RefusalCode::Invalid
    );
    assert_eq!(
        world.refused(&actor, new(AccountKind::Member, foreign)).code,
        RefusalCode::Forbidden
    );
    world.apply(&actor, new(AccountKind::Member, child)).unwrap();
}
