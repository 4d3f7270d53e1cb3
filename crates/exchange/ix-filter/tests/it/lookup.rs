//! Routes to a prefix with their states by RPKI and in the registry.

use core::time::Duration;

use millrace_ix_filter::{RouteObjects, SessionKind, Settings, Validity, VrpState};

use crate::world::World;

#[test]
fn a_route_has_its_validity_and_whether_the_registry_has_its_object() {
    let mut world = World::of(Settings::default(), true, &[64_501, 64_502]);
    world.roas(&[("203.0.113.0/24", 64_501), ("198.51.100.0/24", 64_999)]);
    let account = world.account(64_501);
    let prefix = |text: &str| text.parse().unwrap();
    world.controller.set_route_objects(
        account,
        RouteObjects {
            asns: [64_501].into(),
            origins: [(prefix("203.0.113.0/24"), [64_501].into())].into(),
            expires: world.now.after(Duration::from_secs(1000)),
        },
    );
    for announced in [
        "203.0.113.0/24",
        "203.0.113.128/25",
        "198.51.100.0/24",
        "192.0.2.0/24",
    ] {
        world.announce(64_501, announced, false);
    }
    let states = |world: &World, text: &str| -> Vec<(String, Option<Validity>, Option<bool>)> {
        let found = world
            .controller
            .lookup(&world.exchange, SessionKind::Member, prefix(text), world.now);
        assert!(
            found.iter().all(|route| route.account == Some(account)),
            "{found:?}"
        );
        let state =
            |route: &millrace_ix_filter::FoundRoute| (route.prefix.to_string(), route.rpki, route.irr);
        found.iter().map(state).collect()
    };
    let whole = ("203.0.113.0/24".to_owned(), Some(Validity::Valid), Some(true));
    // The ROA of the whole permits parts, and its route object covers them.
    let part = ("203.0.113.128/25".to_owned(), Some(Validity::Valid), Some(true));
    assert_eq!(states(&world, "203.0.113.0/24"), [whole.clone(), part]);
    assert_eq!(
        states(&world, "203.0.113.7/32"),
        [whole],
        "the longest match of an address"
    );
    let invalid = ("198.51.100.0/24".to_owned(), Some(Validity::Invalid), Some(false));
    assert_eq!(states(&world, "198.51.100.0/24"), [invalid]);
    let unknown = ("192.0.2.0/24".to_owned(), Some(Validity::NotFound), Some(false));
    assert_eq!(states(&world, "192.0.2.0/24"), [unknown]);
    assert_eq!(states(&world, "100.64.0.0/24"), []);
    // A route of a member's session hides none of a route server's.
    world.route_server(64_999);
    world.announce_path(64_999, "203.0.113.0/24", &[64_501], [192, 0, 2, 1]);
    let public = world.controller.lookup(
        &world.exchange,
        SessionKind::RouteServer,
        prefix("203.0.113.200/32"),
        world.now,
    );
    let prefixes: Vec<_> = public.iter().map(|route| route.prefix).collect();
    assert_eq!(prefixes, [prefix("203.0.113.0/24")]);
    // No address is registered in this world: the next hop proves nobody's route (tests/it/route_servers.rs of ix-api has the others).
    let addresses = [std::net::IpAddr::from([192, 0, 2, 1])].into();
    let own = world
        .controller
        .routes_of(&world.exchange, account, &addresses, world.now);
    assert_eq!(own, []);
    assert_eq!(
        world
            .controller
            .states(account, prefix("198.51.100.0/24"), Some(64_501), world.now),
        (Some(Validity::Invalid), Some(false))
    );
    world.controller.set_vrps(VrpState::Stale);
    world.pass(1001);
    let stale = ("192.0.2.0/24".to_owned(), None, None);
    assert_eq!(
        states(&world, "192.0.2.0/24"),
        [stale],
        "a stale cache tells nothing"
    );
}
