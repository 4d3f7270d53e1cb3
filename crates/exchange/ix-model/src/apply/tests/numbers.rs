//! AS numbers of accounts and of ends.

use super::*;

/// Sets the AS numbers of an account, as an operator does.
fn set_asns(world: &mut World, account: AccountId, asns: &[u32], discoverable: bool) {
    let operation = Operation::UpdateAccount {
        account,
        name: None,
        asns: Some(asns.iter().copied().collect()),
        discoverable: Some(discoverable),
        as_set: None,
        limits: None,
    };
    world.apply(&Actor::system(), operation).unwrap();
}

/// Returns an order of an end of a LAN with AS numbers.
fn lan_end(service: ServiceId, connection: ConnectionId, with: &[u32]) -> Operation {
    match end(service, connection, tag(None)) {
        Operation::ConfigureEnd {
            service,
            connection,
            vlan,
            capacity_mbps,
            role,
            external_ref,
            ..
        } => Operation::ConfigureEnd {
            service,
            connection,
            vlan,
            capacity_mbps,
            role,
            asns: with.iter().copied().collect(),
            external_ref,
        },
        other => other,
    }
}

#[test]
fn an_end_takes_no_as_number_of_another_account() {
    let mut world = World::new();
    let lan = world.lan();
    let (a, v) = (world.members[0].clone(), world.members[1].clone());
    let victim = v.account.unwrap();
    set_asns(&mut world, victim, &[64_501], true);
    let [near, far] = world.connections[0];
    let refusal = world.refused(&a, lan_end(lan, near, &[64_500, 64_501]));
    assert_eq!(refusal.code, RefusalCode::Conflict);
    assert_eq!(refusal.field.as_deref(), Some("asns"));
    assert_eq!(refusal.object, Some(victim.into()));
    // The refusal does not name a holder that is not discoverable.
    set_asns(&mut world, victim, &[64_501], false);
    let refusal = world.refused(&a, lan_end(lan, near, &[64_501]));
    assert_eq!((refusal.code, refusal.object), (RefusalCode::Conflict, None));
    assert!(
        !refusal.message.contains(&victim.to_string()),
        "{}",
        refusal.message
    );
    // A number without a holder is accepted, and then belongs to the account: for its own ends, and not for
    // those of others.
    world.apply(&a, lan_end(lan, near, &[64_500])).unwrap();
    world.apply(&a, lan_end(lan, far, &[64_500])).unwrap();
    let of_victim = world.connections[1][0];
    assert_eq!(
        world.refused(&v, lan_end(lan, of_victim, &[64_500])).code,
        RefusalCode::Conflict
    );
    assert_eq!(
        world.refused(&v, lan_end(lan, of_victim, &[0])).code,
        RefusalCode::Invalid
    );
    world.apply(&v, lan_end(lan, of_victim, &[64_501])).unwrap();
}

#[test]
fn an_account_takes_no_as_number_of_an_end_of_another_account() {
    let mut world = World::new();
    let lan = world.lan();
    let a = world.members[0].clone();
    let near = world.connections[0][0];
    world.apply(&a, lan_end(lan, near, &[64_500])).unwrap();
    let claim = |account| Operation::UpdateAccount {
        account,
        name: None,
        asns: Some([64_500].into()),
        discoverable: None,
        as_set: None,
        limits: None,
    };
    let other = world.members[1].account.unwrap();
    let system = Actor::system();
    assert_eq!(world.refused(&system, claim(other)).code, RefusalCode::Conflict);
    world.apply(&system, claim(a.account.unwrap())).unwrap();
}

#[test]
fn a_redeemed_key_takes_no_as_number_of_another_account() {
    let mut world = World::new();
    let (a, v) = (world.members[0].clone(), world.members[1].clone());
    set_asns(&mut world, v.account.unwrap(), &[64_501], true);
    let service = world.apply(&a, order_p2p("open", None)).unwrap().first().unwrap();
    let key = Operation::CreateServiceKey {
        service,
        secret: "0123456789abcdefghijkl".to_owned(),
        valid_until: NOW.after(core::time::Duration::from_secs(3600)),
        vlans: None,
        capacity_mbps: None,
    };
    world.apply(&a, key).unwrap();
    let redeem = Operation::RedeemServiceKey {
        secret: "0123456789abcdefghijkl".to_owned(),
        connection: world.connections[2][0],
        vlan: tag(None),
        capacity_mbps: None,
        asns: [64_501].into(),
    };
    let other = world.members[2].clone();
    assert_eq!(world.refused(&other, redeem).code, RefusalCode::Conflict);
}

#[test]
fn customers_share_numbers_with_their_reseller_and_not_with_each_other() {
    let mut world = World::new();
    let lan = world.lan();
    let reseller = account(&mut world.exchange, "reseller", AccountKind::Reseller, None);
    set_asns(&mut world, reseller, &[64_600], true);
    let mut ends = Vec::new();
    for (name, asn, at_port) in [("one", 64_601, 7), ("two", 64_602, 8)] {
        let child = account(&mut world.exchange, name, AccountKind::Member, Some(reseller));
        set_asns(&mut world, child, &[asn], true);
        let ports = vec![at(
            world.exchange.switches.keys().next().copied().unwrap(),
            at_port,
        )];
        let operation = Operation::CreateConnection {
            account: Some(child),
            name: name.to_owned(),
            kind: ConnectionKind::Standalone,
            ports,
            external_ref: None,
        };
        let connection = world.apply(&Actor::system(), operation).unwrap();
        let tech = actor(
            &mut world.exchange,
            child,
            &format!("{name}-tech"),
            &[Role::MemberTech],
        );
        ends.push((tech, connection.first::<ConnectionId>().unwrap()));
    }
    for (tech, connection) in &ends {
        world.apply(tech, lan_end(lan, *connection, &[64_600])).unwrap();
    }
    let (tech, connection) = &ends[0];
    let refusal = world.refused(tech, lan_end(lan, *connection, &[64_602]));
    assert_eq!(refusal.code, RefusalCode::Conflict);
}
