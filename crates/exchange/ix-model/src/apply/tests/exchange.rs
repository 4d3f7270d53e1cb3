//! Peering LANs, deletion, approval by a second person, references, resellers.

use std::collections::BTreeSet;

use core::net::IpAddr;
use core::time::Duration;

use super::*;

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
fn a_link_local_address_of_one_end_is_not_that_of_another_ends_mac_address() {
    let address: IpAddr = "fe80::200:ff:fe00:99".parse().unwrap();
    let mac = Mac([0, 0, 0, 0, 0, 0x99]);
    for mac_first in [false, true] {
        let mut world = World::new();
        let (a, b, operator) = (
            world.members[0].clone(),
            world.members[1].clone(),
            world.operators[0].clone(),
        );
        let lan = world.lan();
        let mut ends = Vec::new();
        for (actor, member) in [(&a, 0), (&b, 1)] {
            let operation = end(lan, world.connections[member][0], VlanRequest::Port);
            ends.push(
                world
                    .apply(actor, operation)
                    .unwrap()
                    .first::<ConfigId>()
                    .unwrap(),
            );
        }
        let add_ip = |config| Operation::AddIp {
            config,
            address,
            valid_until: None,
        };
        let add_mac = |config| Operation::AddMac {
            config,
            address: mac,
            valid_from: None,
            valid_until: None,
        };
        let refusal = if mac_first {
            world.apply(&b, add_mac(ends[1])).unwrap();
            let refusal = world.refused(&operator, add_ip(ends[0]));
            world.apply(&operator, add_ip(ends[1])).unwrap();
            refusal
        } else {
            world.apply(&operator, add_ip(ends[0])).unwrap();
            let refusal = world.refused(&b, add_mac(ends[1]));
            world.apply(&a, add_mac(ends[0])).unwrap();
            refusal
        };
        assert_eq!(
            (refusal.code, refusal.field.as_deref()),
            (RefusalCode::Conflict, Some("address"))
        );
        assert!(
            refusal
                .message
                .contains("the link-local address of 00:00:00:00:00:99"),
            "{refusal}"
        );
    }
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
    assert_ne!(index_of_next(&mut world, NOW), index, "the number is held");
    assert_eq!(index_of_next(&mut world, NOW.after(allocate::HOLD_DOWN)), index);
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
    for name in [
        "",
        " x",
        "x\n",
        &"x".repeat(101),
        "Aoba\u{202e}tset",
        "a\u{200b}b",
        "a\u{2067}b",
    ] {
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

#[test]
fn the_address_of_the_network_and_that_of_broadcasts_belong_to_no_router() {
    let mut world = World::new();
    let a = world.members[0].clone();
    let operator = world.operators[0].clone();
    let lan = world.lan();
    let config = world
        .apply(&a, end(lan, world.connections[0][0], VlanRequest::Port))
        .unwrap()
        .first::<ConfigId>()
        .unwrap();
    let network = world.exchange.services[&lan].networks[0];
    for address in [network.address(), network.last()] {
        let refusal = world.refused(
            &operator,
            Operation::AddIp {
                config,
                address,
                valid_until: None,
            },
        );
        assert_eq!(refusal.field.as_deref(), Some("address"), "{address}");
        assert!(refusal.message.contains("no address of a host"), "{refusal}");
    }
}

#[test]
fn a_circuit_does_not_invite_its_own_account() {
    let mut world = World::new();
    let a = world.members[0].clone();
    let refusal = world.refused(
        &a,
        Operation::CreateService {
            account: None,
            kind: ServiceKind::P2pVc,
            name: "loop".to_owned(),
            peer: a.account,
            policy: None,
            networks: Vec::new(),
            external_ref: None,
        },
    );
    assert_eq!(
        (refusal.code, refusal.field.as_deref()),
        (RefusalCode::Invalid, Some("peer"))
    );
}

#[test]
fn a_user_has_a_mail_address_or_none() {
    let mut world = World::new();
    let operator = world.operators[0].clone();
    let account = world.members[0].account;
    let user = |email: &str| Operation::CreateUser {
        name: "zoe".to_owned(),
        account,
        roles: BTreeSet::from([Role::MemberTech]),
        email: Some(email.to_owned()),
        language: None,
    };
    let refusal = world.refused(&operator, user("not-a-mail"));
    assert_eq!(refusal.field.as_deref(), Some("email"));
    let made = world.apply(&operator, user("zoe@example.net")).unwrap();
    let update = Operation::UpdateUser {
        user: made.first().unwrap(),
        roles: None,
        email: Some("zoe".to_owned()),
        language: None,
        deactivated: None,
    };
    assert_eq!(world.refused(&operator, update).field.as_deref(), Some("email"));
}

#[test]
fn a_user_is_deactivated_by_another_administrator_and_by_nobody_else() {
    let mut world = World::new();
    let operator = world.operators[0].clone();
    let account = world.members[0].account;
    let made = world
        .apply(
            &operator,
            Operation::CreateUser {
                name: "zoe".to_owned(),
                account,
                roles: BTreeSet::from([Role::MemberAdmin]),
                email: None,
                language: None,
            },
        )
        .unwrap();
    let zoe: UserId = made.first().unwrap();
    let set = |deactivated: bool| Operation::UpdateUser {
        user: zoe,
        roles: None,
        email: None,
        language: None,
        deactivated: Some(deactivated),
    };
    let herself = Actor {
        user: Some(zoe),
        account,
        roles: BTreeSet::from([Role::MemberAdmin]),
        proven_asns: BTreeSet::new(),
    };
    let refusal = world.refused(&herself, set(true));
    assert_eq!(refusal.field.as_deref(), Some("deactivated"));
    world.apply(&operator, set(true)).unwrap();
    assert!(world.exchange.users[&zoe].deactivated);
    world.apply(&operator, set(false)).unwrap();
    assert!(!world.exchange.users[&zoe].deactivated);
}

#[test]
fn a_placeholder_without_a_created_object_is_refused_as_such() {
    let mut world = World::new();
    let operator = world.operators[0].clone();
    let account = world.members[0].account;
    let refusal = world.refused(
        &operator,
        Operation::CreateConnection {
            account,
            name: "x".to_owned(),
            kind: ConnectionKind::Standalone,
            ports: vec!["sw-0:1".parse().unwrap()],
            external_ref: None,
        },
    );
    assert_eq!(refusal.field.as_deref(), Some("ports"));
    assert!(
        refusal.message.starts_with("sw-0 stands for an object"),
        "{refusal}"
    );
    let refusal = world.refused(
        &operator,
        Operation::Accept {
            service: ServiceId(0),
        },
    );
    assert!(refusal.message.starts_with("sv-0 stands for"), "{refusal}");
}
