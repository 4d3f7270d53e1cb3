//! AS numbers and AS-SETs of accounts and ends, and names that look alike.

use super::*;

/// Returns an order that changes nothing of an account.
fn update(account: AccountId) -> Operation {
    Operation::UpdateAccount {
        account,
        name: None,
        asns: None,
        discoverable: None,
        as_set: None,
        limits: None,
    }
}

/// Returns an order of new AS numbers of an account.
fn claim(account: AccountId, numbers: &[u32]) -> Operation {
    let mut operation = update(account);
    if let Operation::UpdateAccount { asns, .. } = &mut operation {
        *asns = Some(numbers.iter().copied().collect());
    }
    operation
}

/// Returns an order of a new AS-SET of an account.
fn name_set(account: AccountId, text: &str) -> Operation {
    let mut operation = update(account);
    if let Operation::UpdateAccount { as_set, .. } = &mut operation {
        *as_set = Some(text.to_owned());
    }
    operation
}

/// Returns an order of a new name of an account.
fn rename(account: AccountId, text: &str) -> Operation {
    let mut operation = update(account);
    if let Operation::UpdateAccount { name, .. } = &mut operation {
        *name = Some(text.to_owned());
    }
    operation
}

/// Returns a person who administers an account.
fn admin(world: &mut World, account: AccountId) -> Actor {
    actor(
        &mut world.exchange,
        account,
        &format!("admin of {account}"),
        &[Role::MemberAdmin],
    )
}

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
    set_asns(&mut world, a.account.unwrap(), &[64_500], true);
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
    // A number without a holder gets the answer of a hidden holder.
    let of_nobody = world.refused(&a, lan_end(lan, near, &[15_169]));
    assert_eq!((of_nobody.code, of_nobody.object), (RefusalCode::Conflict, None));
    assert_eq!(of_nobody.coded[0].code, refusal.coded[0].code);
    // Neither the staff nor the command line gives an end a number that its account does not have.
    for staff in [world.operators[0].clone(), Actor::system()] {
        let refusal = world.refused(&staff, lan_end(lan, near, &[15_169]));
        assert_eq!(refusal.coded[0].code, "asn-not-of-account");
    }
    // The numbers of the account are accepted, at each of its ends.
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
fn a_new_number_of_an_account_needs_the_staff_or_a_sign_in_that_proves_it() {
    let mut world = World::new();
    let (a, v) = (
        world.members[0].account.unwrap(),
        world.members[1].account.unwrap(),
    );
    set_asns(&mut world, a, &[64_500], true);
    set_asns(&mut world, v, &[64_501], false);
    let mut admin = admin(&mut world, a);
    // A number that nobody has and one of a hidden account get the same answer.
    for asn in [15_169, 64_501] {
        let refusal = world.refused(&admin, claim(a, &[64_500, asn]));
        assert_eq!((refusal.code, refusal.object), (RefusalCode::Forbidden, None));
        assert_eq!(refusal.field.as_deref(), Some("asns"));
        assert_eq!(refusal.coded[0].code, "asn-unproven");
    }
    admin.proven_asns = [64_510].into();
    assert_eq!(
        world.refused(&admin, claim(a, &[64_500, 64_511])).code,
        RefusalCode::Forbidden
    );
    world.apply(&admin, claim(a, &[64_500, 64_510])).unwrap();
    // A number that the account has needs no further proof, and may be given up.
    admin.proven_asns.clear();
    world.apply(&admin, claim(a, &[64_510])).unwrap();
    assert_eq!(
        world.refused(&admin, claim(a, &[64_500])).code,
        RefusalCode::Forbidden
    );
    let exchange = world.operators[0].account.unwrap();
    let provisioning = actor(
        &mut world.exchange,
        exchange,
        "desk",
        &[Role::OperatorProvisioning],
    );
    world.apply(&provisioning, claim(a, &[64_500])).unwrap();
    // A proof does not take a number from the account that has it.
    admin.proven_asns = [64_501].into();
    assert_eq!(
        world.refused(&admin, claim(a, &[64_501])).code,
        RefusalCode::Conflict
    );
}

#[test]
fn a_reseller_creates_no_account_with_a_number_that_is_not_proven() {
    let mut world = World::new();
    let reseller = account(&mut world.exchange, "reseller", AccountKind::Reseller, None);
    let mut seller = actor(&mut world.exchange, reseller, "seller", &[Role::Reseller]);
    let create = |name: &str, numbers: &[u32]| Operation::CreateAccount {
        name: name.to_owned(),
        kind: AccountKind::Member,
        parent: Some(reseller),
        asns: numbers.iter().copied().collect(),
        discoverable: true,
        as_set: None,
        external_ref: None,
    };
    let refusal = world.refused(&seller, create("child", &[15_169]));
    assert_eq!(
        (refusal.code, refusal.field.as_deref()),
        (RefusalCode::Forbidden, Some("asns"))
    );
    let child = world
        .apply(&seller, create("child", &[]))
        .unwrap()
        .first()
        .unwrap();
    assert_eq!(
        world.refused(&seller, claim(child, &[15_169])).code,
        RefusalCode::Forbidden
    );
    seller.proven_asns = [64_700].into();
    world.apply(&seller, claim(child, &[64_700])).unwrap();
}

#[test]
fn an_end_loses_a_number_that_its_account_gives_up() {
    let mut world = World::new();
    let lan = world.lan();
    let a = world.members[0].clone();
    let id = a.account.unwrap();
    set_asns(&mut world, id, &[64_500, 64_510], true);
    let near = world.connections[0][0];
    let end: ConfigId = world
        .apply(&a, lan_end(lan, near, &[64_500, 64_510]))
        .unwrap()
        .first()
        .unwrap();
    set_asns(&mut world, id, &[64_500], true);
    assert_eq!(world.exchange.configs[&end].asns, [64_500].into());
    // Now the number is free for its next holder.
    let next = world.members[1].account.unwrap();
    set_asns(&mut world, next, &[64_510], true);
    assert_eq!(
        world.exchange.asns_of(&world.exchange.configs[&end]),
        [64_500].into()
    );
}

#[test]
fn an_as_set_is_registered_by_the_staff_or_named_after_a_number_of_the_account() {
    let mut world = World::new();
    let (a, v) = (
        world.members[0].account.unwrap(),
        world.members[1].account.unwrap(),
    );
    set_asns(&mut world, a, &[64_500], true);
    set_asns(&mut world, v, &[64_501], true);
    let admin = admin(&mut world, a);
    for foreign in [
        "AS-GOOGLE@RIPE",
        "AS-GOOGLE",
        "AS64501:AS-CUSTOMERS",
        "AS15169",
        "AS-X:AS64500",
    ] {
        let refusal = world.refused(&admin, name_set(a, foreign));
        assert_eq!(
            (refusal.code, refusal.field.as_deref()),
            (RefusalCode::Forbidden, Some("as_set")),
            "{foreign}"
        );
        assert!(world.exchange.as_set_of(a, foreign).is_err(), "{foreign}");
    }
    assert_eq!(
        world.refused(&admin, name_set(a, "not a set")).code,
        RefusalCode::Invalid
    );
    assert_eq!(
        world.refused(&Actor::system(), name_set(a, "AS-X\n!gAS1")).code,
        RefusalCode::Invalid
    );
    world.apply(&admin, name_set(a, "AS64500:AS-CUSTOMERS")).unwrap();
    for own in ["AS64500", "RIPE::as64500:as-v6"] {
        assert!(world.exchange.as_set_of(a, own).is_ok(), "{own}");
    }
    world
        .apply(&Actor::system(), name_set(a, "RIPE::AS-AOBA"))
        .unwrap();
    assert!(world.exchange.as_set_of(a, "AS-AOBA@RIPE").is_ok());
    assert!(
        world.exchange.as_set_of(a, "AS-AOBA@RADB").is_err(),
        "anybody may register the name elsewhere"
    );
    assert!(world.exchange.as_set_of(v, "AS-AOBA@RIPE").is_err());
    // The number is gone, and with it the right to speak for sets that are named after it.
    set_asns(&mut world, a, &[], true);
    assert!(world.exchange.as_set_of(a, "AS64500:AS-CUSTOMERS").is_err());
}

#[test]
fn a_member_does_not_rename_itself_and_nobody_takes_a_name_that_looks_like_another() {
    let mut world = World::new();
    let reseller = account(&mut world.exchange, "Kyoto Resale", AccountKind::Reseller, None);
    let child = account(&mut world.exchange, "Kind", AccountKind::Member, Some(reseller));
    let seller = actor(&mut world.exchange, reseller, "seller", &[Role::Reseller]);
    let owner = admin(&mut world, child);
    let refusal = world.refused(&owner, rename(child, "Google LLC"));
    assert_eq!(
        (refusal.code, refusal.field.as_deref()),
        (RefusalCode::Forbidden, Some("name"))
    );
    world.apply(&owner, rename(child, "Kind")).unwrap();
    world.apply(&seller, rename(child, "Kind Networks")).unwrap();
    // The second has a Cyrillic o, the third a Greek one.
    for alike in ["KYOTO resale", "Ky\u{43e}to Resale", "Kyot\u{3bf} Resale"] {
        let refusal = world.refused(&seller, rename(child, alike));
        assert_eq!(
            (refusal.code, refusal.coded[0].code.as_str()),
            (RefusalCode::Conflict, "name-looks-alike"),
            "{alike}"
        );
    }
    let user = |name: &str| Operation::CreateUser {
        name: name.to_owned(),
        account: Some(child),
        roles: [Role::MemberTech].into(),
        email: None,
        language: None,
    };
    assert_eq!(world.refused(&owner, user("SELLER")).code, RefusalCode::Conflict);
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
