//! Limits of the services and ends of an account.

use super::*;

fn set_limits(world: &mut World, account: AccountId, limits: Limits) -> Operation {
    let operation = Operation::UpdateAccount {
        account,
        name: None,
        asns: None,
        discoverable: None,
        as_set: None,
        limits: Some(limits),
    };
    world.apply(&Actor::system(), operation.clone()).unwrap();
    operation
}

#[test]
fn an_account_has_at_most_its_limit_of_services_and_others_are_not_held_back() {
    let mut world = World::new();
    let (a, b, operator) = (
        world.members[0].clone(),
        world.members[1].clone(),
        world.operators[0].clone(),
    );
    let account = a.account.unwrap();
    let limits = Limits {
        services: 2,
        ..Limits::default()
    };
    let raise = set_limits(&mut world, account, limits);
    for name in ["one", "two"] {
        world.apply(&a, order_p2p(name, None)).unwrap();
    }
    let refusal = world.refused(&a, order_p2p("three", None));
    assert_eq!(
        (refusal.code, refusal.object),
        (RefusalCode::Exhausted, Some(account.into()))
    );
    assert!(
        refusal.message.contains("have 2 services, which is their limit"),
        "{refusal}"
    );
    world.apply(&b, order_p2p("three", None)).unwrap();
    // Only the staff may order beyond the limit, and raise it.
    let Operation::CreateService {
        kind,
        name,
        peer,
        policy,
        networks,
        external_ref,
        ..
    } = order_p2p("three", None)
    else {
        unreachable!()
    };
    let account = Some(account);
    world
        .apply(
            &operator,
            Operation::CreateService {
                account,
                kind,
                name,
                peer,
                policy,
                networks,
                external_ref,
            },
        )
        .unwrap();
    let admin = Actor {
        roles: [Role::MemberAdmin].into(),
        ..a
    };
    assert_eq!(world.refused(&admin, raise).code, RefusalCode::Forbidden);
}

#[test]
fn services_over_trunks_and_ends_have_limits_of_their_own() {
    let mut world = World::new();
    let a = world.members[0].clone();
    let limits = Limits {
        carried: 1,
        ends: 5,
        ..Limits::default()
    };
    set_limits(&mut world, a.account.unwrap(), limits);
    let [near, far] = world.connections[0];
    let order = |world: &mut World, name: &str, vlan: u16| -> ServiceId {
        let service = world.apply(&a, order_p2p(name, None)).unwrap().first().unwrap();
        world.apply(&a, end(service, near, tag(vlan))).unwrap();
        service
    };
    let first = order(&mut world, "first", 100);
    world.apply(&a, end(first, far, tag(100))).unwrap();
    let second = order(&mut world, "second", 101);
    let refusal = world.refused(&a, end(second, far, tag(101)));
    assert!(
        refusal.message.contains("have 1 services over trunks"),
        "{refusal}"
    );
    // A service at one switch needs no trunk. It cannot move to another switch later.
    world.apply(&a, end(second, near, tag(102))).unwrap();
    let (moved, _) = world.exchange.ends(second).last().unwrap();
    let to_trunk = Operation::MoveEnd {
        config: moved,
        connection: far,
        vlan: tag(103),
    };
    assert_eq!(world.refused(&a, to_trunk).code, RefusalCode::Exhausted);
    let third = order(&mut world, "third", 104);
    let refusal = world.refused(&a, end(third, near, tag(105)));
    assert!(refusal.message.contains("have 5 ends"), "{refusal}");
}

#[test]
fn a_reseller_has_no_more_services_by_making_accounts() {
    let mut world = World::new();
    let reseller = account(&mut world.exchange, "reseller", AccountKind::Reseller, None);
    let limits = Limits {
        services: 1,
        ..Limits::default()
    };
    set_limits(&mut world, reseller, limits);
    let techs = ["one", "two"].map(|name| {
        let child = account(&mut world.exchange, name, AccountKind::Member, Some(reseller));
        actor(
            &mut world.exchange,
            child,
            &format!("{name}-tech"),
            &[Role::MemberTech],
        )
    });
    world.apply(&techs[0], order_p2p("first", None)).unwrap();
    let refusal = world.refused(&techs[1], order_p2p("second", None));
    assert_eq!(
        (refusal.code, refusal.object),
        (RefusalCode::Exhausted, Some(reseller.into()))
    );
}

#[test]
fn an_exchange_above_a_limit_is_loaded_and_an_older_account_has_the_usual_limits() {
    let mut world = World::new();
    let a = world.members[0].clone();
    let account = a.account.unwrap();
    world.apply(&a, order_p2p("one", None)).unwrap();
    let limits = Limits {
        services: 0,
        ..Limits::default()
    };
    set_limits(&mut world, account, limits);
    let mut stored = serde_json::to_value(&world.exchange).unwrap();
    let read: Exchange = serde_json::from_value(stored.clone()).unwrap();
    assert_eq!(read, world.exchange);
    for (_, account) in stored["accounts"].as_object_mut().unwrap() {
        account.as_object_mut().unwrap().remove("limits");
    }
    let older: Exchange = serde_json::from_value(stored).unwrap();
    assert!(older.accounts.values().all(|account| account.limits.is_default()));
}

#[test]
fn the_contracted_rates_of_a_connection_fill_the_share_of_its_speed_that_the_exchange_admits() {
    let mut world = World::new();
    let (a, operator) = (world.members[0].clone(), world.operators[0].clone());
    // The connection has 10,000 Mbit/s.
    let connection = world.connections[0][0];
    let order = |world: &mut World, actor: &Actor, name: &str, vlan: u16, rate: u32| {
        let service = world
            .apply(&a, order_p2p(name, None))
            .unwrap()
            .first::<ServiceId>()
            .unwrap();
        let mut operation = end(service, connection, tag(vlan));
        if let Operation::ConfigureEnd { capacity_mbps, .. } = &mut operation {
            *capacity_mbps = Some(rate);
        }
        world
            .apply(actor, operation)
            .map(|applied| applied.first::<ConfigId>().unwrap())
    };
    let first = order(&mut world, &a, "one", 1, 6000).unwrap();
    let refusal = order(&mut world, &a, "two", 2, 4001).unwrap_err();
    assert_eq!(
        (refusal.code, refusal.field.as_deref()),
        (RefusalCode::Exhausted, Some("capacity_mbps"))
    );
    assert!(refusal.message.contains("at most 4000 do"), "{refusal}");
    let second = order(&mut world, &a, "three", 3, 4000).unwrap();
    let set = |config, rate| Operation::SetRate {
        config,
        capacity_mbps: Some(rate),
    };
    let refusal = world.refused(&a, set(second, 4001));
    assert_eq!(refusal.code, RefusalCode::Exhausted);
    world.apply(&a, set(first, 5000)).unwrap();
    world.apply(&a, set(second, 5000)).unwrap();
    // The exchange may sell the speed more than once: by an order of its staff, or by a limit of the account.
    let third = order(&mut world, &operator, "four", 4, 3000).unwrap();
    world.apply(&a, set(third, 2000)).unwrap();
    world.refused(&a, set(third, 2500));
    let limits = Limits {
        connection_percent: 200,
        ..Limits::default()
    };
    set_limits(&mut world, a.account.unwrap(), limits);
    world.apply(&a, set(third, 10_000)).unwrap();
    world.refused(&a, set(second, 5001));
}
