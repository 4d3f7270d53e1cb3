//! Circuits: consent, tags, moves and service keys.

use std::collections::BTreeSet;

use core::time::Duration;

use super::*;

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
    // A circuit has two ends: a third end is refused, whoever orders it.
    let refusal = world.refused(&a, end(service, world.connections[0][1], tag(None)));
    assert_eq!(refusal.code, RefusalCode::Conflict);
    // Both parties see the service. A third one is refused in the same words as for an absent service.
    assert!(world.exchange.may_read(&b, service.into()));
    let third = world.members[2].clone();
    let foreign = world.refused(
        &third,
        Operation::RenameService {
            service,
            name: "x".to_owned(),
        },
    );
    let absent = ServiceId(9999);
    let absent = world.refused(
        &third,
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
fn a_refused_invitation_gives_back_its_vlan_and_its_rate() {
    let mut world = World::new();
    let service = world.circuit();
    let (a, b) = (world.members[0].clone(), world.members[1].clone());
    let connection = world.connections[0][0];
    world.apply(&a, end(service, connection, tag(5))).unwrap();
    let reason = "wrong port".to_owned();
    world.apply(&b, Operation::Refuse { service, reason }).unwrap();
    assert_eq!(world.exchange.ends(service).count(), 0);
    assert!(world.exchange.services[&service].wire_id.is_none());
    let other = world
        .apply(&a, order_p2p("another", None))
        .unwrap()
        .first()
        .unwrap();
    world.apply(&a, end(other, connection, tag(5))).unwrap();
}

#[test]
fn a_member_leaves_a_path_that_it_accepted() {
    let mut world = World::new();
    let service = world.circuit();
    let (a, b) = (world.members[0].clone(), world.members[1].clone());
    world
        .apply(&a, end(service, world.connections[0][0], tag(5)))
        .unwrap();
    let own = world
        .apply(&b, end(service, world.connections[1][1], tag(5)))
        .unwrap()
        .first::<ConfigId>()
        .unwrap();
    assert_eq!(world.exchange.services[&service].consent, Consent::Accepted);
    let target = own.into();
    world.refused(&a, Operation::Delete { target });
    world.apply(&b, Operation::Delete { target }).unwrap();
    assert_eq!(world.exchange.ends(service).count(), 1);
    assert!(world.exchange.services[&service].wire_id.is_none());
}

#[test]
fn a_member_leaves_a_peering_lan() {
    let mut world = World::new();
    let lan = world.lan();
    let b = world.members[1].clone();
    let own = world
        .apply(&b, end(lan, world.connections[1][0], tag(5)))
        .unwrap()
        .first::<ConfigId>()
        .unwrap();
    world.apply(&b, Operation::Delete { target: own.into() }).unwrap();
    assert_eq!(world.exchange.ends(lan).count(), 0);
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
    // Two VLANs of one port can be the ends of a circuit. The second end has an index of its own.
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
    let hold = |world: &World| {
        world.exchange.pools[&PoolKind::WireId]
            .released
            .get(&old)
            .copied()
    };
    assert_eq!(hold(&world), Some(NumberHold::InSwitches));
    let numbers = vec![(PoolKind::WireId, old)];
    world
        .apply(&Actor::system(), Operation::ReportRulesGone { numbers })
        .unwrap();
    assert_eq!(
        hold(&world),
        Some(NumberHold::FreeFrom(NOW.after(allocate::HOLD_DOWN)))
    );
    // A change of the rate does not change the path.
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
    // An end that moves to the switch of the other end no longer needs a trunk.
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
    assert_eq!(hold(&world), None);
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
    bounds_of_a_redeemed_key_stay(&mut world, service, &a, &c, connection);
}

#[test]
fn a_service_key_with_bounds_of_the_vlan_selects_an_outer_tag_within_them() {
    let mut world = World::new();
    let (a, c) = (world.members[0].clone(), world.members[2].clone());
    let connection = world.connections[2][1];
    for outer in [300, 301] {
        let order = order_p2p(&format!("keyed {outer}"), None);
        let service = world.apply(&a, order).unwrap().first::<ServiceId>().unwrap();
        let secret = outer.to_string().repeat(8);
        let key = Operation::CreateServiceKey {
            service,
            secret: secret.clone(),
            valid_until: NOW.after(Duration::from_secs(60)),
            vlans: Some((300, 310)),
            capacity_mbps: None,
        };
        world.apply(&a, key).unwrap();
        let redeem = Operation::RedeemServiceKey {
            secret,
            connection,
            vlan: VlanRequest::Qinq {
                outer: None,
                inner: None,
                ethertype: TagType::STag,
            },
            capacity_mbps: Some(5),
            asns: BTreeSet::new(),
        };
        world.apply(&c, redeem).unwrap();
        let (_, config) = world.exchange.ends(service).next().unwrap();
        assert_eq!(config.vlan.outer().unwrap().raw(), outer);
        // The next key gets another outer tag, because one tag with this VID is all of it.
        if outer == 300 {
            let (config, _) = world.exchange.ends(service).next().unwrap();
            let operation = Operation::MoveEnd {
                config,
                connection,
                vlan: tag(300),
            };
            world.apply(&c, operation).unwrap();
        }
    }
}

fn bounds_of_a_redeemed_key_stay(
    world: &mut World,
    service: ServiceId,
    owner: &Actor,
    holder: &Actor,
    connection: ConnectionId,
) {
    let (config, _) = world.exchange.ends(service).next().unwrap();
    let set_rate = |capacity_mbps| Operation::SetRate {
        config,
        capacity_mbps,
    };
    let move_to = |vlan| Operation::MoveEnd {
        config,
        connection,
        vlan,
    };
    let configure = |vlan, capacity_mbps| Operation::ConfigureEnd {
        service,
        connection,
        vlan: tag(vlan),
        capacity_mbps,
        role: EndRole::Root,
        asns: BTreeSet::new(),
        external_ref: None,
    };
    let field = |world: &mut World, operation| world.refused(holder, operation).field.unwrap();
    assert_eq!(field(world, set_rate(Some(501))), "capacity_mbps");
    assert_eq!(field(world, set_rate(None)), "capacity_mbps");
    world.apply(holder, set_rate(Some(400))).unwrap();
    assert_eq!(field(world, move_to(tag(299))), "vlan");
    world.apply(holder, move_to(tag(310))).unwrap();
    world.apply(holder, move_to(tag(310))).unwrap();
    // A new order of the end has the same limits.
    let target = config.into();
    world.apply(holder, Operation::Delete { target }).unwrap();
    assert_eq!(field(world, configure(300, None)), "capacity_mbps");
    assert_eq!(field(world, configure(299, Some(500))), "vlan");
    world.apply(holder, configure(300, Some(500))).unwrap();
    // The owner of the service removes the limits by revoking the key.
    let (key, _) = world.exchange.service_keys.iter().next().unwrap();
    let key = *key;
    world.apply(owner, Operation::RevokeServiceKey { key }).unwrap();
    let (config, _) = world.exchange.ends(service).next().unwrap();
    let capacity_mbps = Some(600);
    world
        .apply(
            holder,
            Operation::SetRate {
                config,
                capacity_mbps,
            },
        )
        .unwrap();
}

#[test]
fn an_invited_reseller_consents_by_an_end_on_a_connection_of_a_customer() {
    let mut world = World::new();
    let reseller = account(&mut world.exchange, "reseller", AccountKind::Reseller, None);
    let child = account(
        &mut world.exchange,
        "customer",
        AccountKind::Member,
        Some(reseller),
    );
    let roles = [Role::Reseller, Role::MemberTech];
    let seller = actor(&mut world.exchange, reseller, "seller", &roles);
    let switch = *world.exchange.switches.keys().next().unwrap();
    let mut connect = |number: u32| -> ConnectionId {
        let operation = Operation::CreateConnection {
            account: Some(child),
            name: format!("customer {number}"),
            kind: ConnectionKind::Standalone,
            ports: vec![at(switch, number)],
            external_ref: None,
        };
        world.apply(&Actor::system(), operation).unwrap().first().unwrap()
    };
    let connections = [connect(10), connect(11)];
    let inviting = world.members[0].clone();
    let service = world
        .apply(&inviting, order_p2p("invited", Some(reseller)))
        .unwrap()
        .first()
        .unwrap();
    world
        .apply(&seller, end(service, connections[0], tag(100)))
        .unwrap();
    assert_eq!(world.exchange.services[&service].consent, Consent::Accepted);
    // The customer invites its reseller. The customer's own end does not count as the reseller's consent.
    let tech = actor(&mut world.exchange, child, "customer-tech", &[Role::MemberTech]);
    let own = world
        .apply(&tech, order_p2p("own", Some(reseller)))
        .unwrap()
        .first()
        .unwrap();
    world.apply(&tech, end(own, connections[1], tag(101))).unwrap();
    assert_eq!(world.exchange.services[&own].consent, Consent::Pending);
}

#[test]
fn a_bundle_with_lacp_is_one_port_of_its_switch() {
    let mut world = World::new();
    let operator = world.operators[0].clone();
    let [connection, _] = world.connections[0];
    let port = world.exchange.connections[&connection].ports[0];
    let other = PortId {
        port: PortNo::from_raw(19),
        ..port
    };
    let with = |kind, ports| Operation::SetConnectionPorts {
        connection,
        kind,
        ports,
    };
    // A group of several ports would hash over members of which LACP may use none.
    let refusal = world.refused(&operator, with(ConnectionKind::LagLacp, vec![port, other]));
    assert_eq!(
        (refusal.code, refusal.field.as_deref()),
        (RefusalCode::Invalid, Some("ports"))
    );
    assert!(refusal.message.contains("lag_static"), "{refusal}");
    world
        .apply(&operator, with(ConnectionKind::LagStatic, vec![port, other]))
        .unwrap();
    assert!(world.exchange.connections[&connection].group.is_some());
    world
        .apply(&operator, with(ConnectionKind::LagLacp, vec![port]))
        .unwrap();
    let found = &world.exchange.connections[&connection];
    assert_eq!((found.kind, found.group), (ConnectionKind::LagLacp, None));
}
