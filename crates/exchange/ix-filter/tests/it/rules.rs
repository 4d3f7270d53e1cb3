//! Tests of the filters that follow from the rules of BGP peers, over time.

use core::time::Duration;

use millrace_bgp::flowspec::{Component, NumericField, NumericOperator, Pattern};
use millrace_bgp::{Afi, FlowRule, MessageType};
use millrace_ix_filter::{RouteObjects, Settings, VrpState};
use millrace_ix_model::{FilterAction, FilterMatch, FilterOrigin, FilterState, Operation, Ports};

use crate::world::{World, bgp, udp_to};

fn world() -> World {
    let mut world = World::new(&[64_501, 64_502]);
    world.roas(&[("203.0.113.0/24", 64_501), ("198.51.100.0/24", 64_502)]);
    world.announce(64_501, "203.0.113.0/24", false);
    world.announce(64_502, "198.51.100.0/24", false);
    world.reconcile();
    world
}

fn reason(world: &World) -> String {
    match &world.filters()[0].state {
        FilterState::Refused(reason) | FilterState::Suspended(reason) => reason.text.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_blackhole_is_a_filter_until_it_is_withdrawn_and_again_it_changes_nothing() {
    let mut world = world();
    world.announce(64_501, "203.0.113.7/32", true);
    assert_eq!(world.reconcile().operations.len(), 1);
    let filter = world.filters()[0];
    assert_eq!(
        (filter.action, filter.origin),
        (FilterAction::Drop, FilterOrigin::Rtbh)
    );
    assert_eq!(world.states(), ["active"]);
    world.announce(64_501, "203.0.113.7/32", true);
    assert!(!world.controller.is_dirty());
    world.controller.exchange_changed();
    assert_eq!(
        world.reconcile().operations,
        [],
        "a whole comparison finds nothing either"
    );
    // Without the community the route is an ordinary one.
    world.announce(64_501, "203.0.113.7/32", false);
    assert_eq!(world.reconcile().operations.len(), 1);
    assert_eq!(world.filters().len(), 0);
}

#[test]
fn who_does_not_own_a_destination_is_refused_with_the_missing_object() {
    let mut world = world();
    world.announce(64_502, "203.0.113.7/32", true);
    world.reconcile();
    assert_eq!(world.states(), ["refused"]);
    let roa = "missing: ROA for 203.0.113.0/24 with origin AS64502";
    assert!(reason(&world).contains(roa), "{}", reason(&world));
    // The ROA appears: the same rule becomes active, provided that the prefix is announced.
    world.roas(&[("203.0.113.0/24", 64_502), ("203.0.112.0/23", 64_502)]);
    world.reconcile();
    let route = "missing: BGP route that covers 203.0.113.7/32";
    assert!(reason(&world).contains(route), "{}", reason(&world));
    world.announce(64_502, "203.0.112.0/23", false);
    world.reconcile();
    assert_eq!(world.states(), ["active"]);
}

#[test]
fn the_loss_of_a_prefix_suspends_after_five_minutes_and_its_return_resumes() {
    let mut world = world();
    world.announce(64_501, "203.0.113.7/32", true);
    world.reconcile();
    world.withdraw(64_501, "203.0.113.0/24");
    let again = world.reconcile().again_at.unwrap();
    assert_eq!(again.since(world.now).as_secs(), 300);
    world.pass(299);
    assert_eq!(world.reconcile().operations, []);
    world.pass(1);
    world.reconcile();
    assert_eq!(world.states(), ["suspended"]);
    world.announce(64_501, "203.0.113.0/24", false);
    world.reconcile();
    assert_eq!(world.states(), ["active"]);
}

#[test]
fn caches_that_do_not_answer_suspend_nothing_and_permit_nothing_new() {
    let mut world = world();
    world.announce(64_501, "203.0.113.7/32", true);
    world.reconcile();
    world.controller.set_vrps(VrpState::Stale);
    world.announce(64_501, "203.0.113.8/32", true);
    world.reconcile();
    world.pass(1000);
    world.reconcile();
    assert_eq!(world.states(), ["active", "refused"]);
}

#[test]
fn a_registry_that_does_not_answer_suspends_no_filter_of_a_customers_prefix() {
    let settings = Settings {
        extensions: true,
        ..Settings::default()
    };
    let mut world = World::of(settings, true, &[64_501, 64_502]);
    // The ROA of the prefix names AS 64510, which is a member of the AS-SET of 64501.
    world.roas(&[("203.0.113.0/24", 64_510)]);
    let account = world.account(64_501);
    world.order(vec![Operation::UpdateAccount {
        account,
        name: None,
        asns: None,
        discoverable: None,
        as_set: Some("AS-EXAMPLE".to_owned()),
        limits: None,
    }]);
    let objects = RouteObjects {
        asns: [64_501, 64_510].into(),
        expires: world.now.after(Duration::from_secs(1000)),
        ..RouteObjects::default()
    };
    world.controller.set_route_objects(account, objects.clone());
    world.announce_path(64_501, "203.0.113.0/24", &[64_501, 64_510], [192, 0, 2, 1]);
    world.announce(64_501, "203.0.113.7/32", true);
    world.reconcile();
    assert_eq!(world.states(), ["active"]);
    // The objects have expired: the active filter stays, and a new one is refused.
    world.pass(1001);
    world.announce(64_501, "203.0.113.8/32", true);
    for _ in 0..3 {
        world.controller.exchange_changed();
        world.reconcile();
        world.pass(400);
    }
    assert_eq!(world.states(), ["active", "refused"]);
    // The registry answers that the customer is no member any more.
    let expires = world.now.after(Duration::from_secs(10_000));
    let asns = [64_501].into();
    world.controller.set_route_objects(
        account,
        RouteObjects {
            asns,
            expires,
            ..objects
        },
    );
    world.reconcile();
    world.pass(301);
    world.reconcile();
    assert_eq!(world.states(), ["suspended", "refused"]);
}

#[test]
fn a_next_hop_that_asks_for_a_drop_is_one_at_a_route_server_too() {
    let settings = Settings {
        extensions: true,
        blackhole_next_hops: ["192.0.2.66".parse().unwrap()].into(),
        ..Settings::default()
    };
    let mut world = World::of(settings, false, &[64_501, 64_502]);
    world.roas(&[("203.0.113.0/24", 64_501)]);
    world.announce(64_501, "203.0.113.0/24", false);
    world.route_server(64_590);
    world.announce_path(64_590, "203.0.113.7/32", &[64_501], [192, 0, 2, 66]);
    world.reconcile();
    assert_eq!(world.states(), ["active"]);
    let filter = world.filters()[0];
    assert_eq!(filter.origin, FilterOrigin::Rtbh);
    assert_eq!(filter.account, world.account(64_501));
    // The same route from another member belongs to that member, which does not own the prefix.
    world.announce_path(64_590, "203.0.113.8/32", &[64_502], [192, 0, 2, 66]);
    world.reconcile();
    assert_eq!(world.states(), ["active", "refused"]);
    assert_eq!(world.filters()[1].account, world.account(64_502));
    for prefix in ["203.0.113.7/32", "203.0.113.8/32"] {
        world.withdraw(64_590, prefix);
    }
    world.reconcile();
    assert_eq!(world.filters().len(), 0);
}

#[test]
fn rules_outlive_a_restart_of_the_engine_until_their_peer_has_announced_all_routes() {
    let mut before = world();
    before.announce(64_501, "203.0.113.7/32", true);
    before.reconcile();
    // A new process with the same database: the peer has not announced anything yet.
    let mut world = World::new(&[64_501, 64_502]);
    world.exchange = before.exchange;
    world.roas(&[("203.0.113.0/24", 64_501)]);
    world.reconcile();
    assert_eq!(world.states(), ["active"]);
    // The peer sends End-of-RIB for three families, then for the fourth, and has not announced the rule.
    let end = |afi, safi| vec![0, 0, 0, 6, 0x80, 15, 3, 0, afi, safi];
    for body in [vec![0; 4], end(2, 1), end(1, 133)] {
        world.send(64_501, MessageType::Update, &body);
        world.reconcile();
        assert_eq!(world.states(), ["active"]);
    }
    world.send(64_501, MessageType::Update, &end(2, 133));
    world.reconcile();
    assert_eq!(world.filters().len(), 0);
}

#[test]
fn a_withdrawal_soon_after_the_start_counts_without_end_of_rib() {
    let mut world = world();
    world.announce(64_501, "203.0.113.7/32", true);
    world.reconcile();
    world.withdraw(64_501, "203.0.113.7/32");
    world.reconcile();
    assert_eq!(world.filters().len(), 0, "GoBGP sends no End-of-RIB");
}

#[test]
fn an_account_has_500_live_filters_and_fifty_changes_a_second() {
    let mut world = world();
    for number in 0..240u32 {
        world.announce(64_501, &format!("203.0.113.{number}/32"), true);
        world.flow(64_501, &udp_to(&format!("203.0.113.{number}/32")));
        if number % 2 == 0 {
            world.flow(64_501, &udp_to(&format!("203.0.113.{number}/31")));
        }
    }
    assert_eq!(world.reconcile().operations.len(), 50);
    for _ in 0..15 {
        world.pass(1);
        assert!(world.reconcile().operations.len() <= 50);
    }
    let states = world.states();
    let count = |name: &str| states.iter().filter(|state| *state == name).count();
    assert_eq!((states.len(), count("active"), count("refused")), (600, 500, 100));
}

#[test]
fn five_hundred_refused_rules_are_kept_over_all_comparisons() {
    let mut world = world();
    for third in 0..3u32 {
        for fourth in 0..200u32 {
            world.announce(64_501, &format!("198.51.{third}.{fourth}/32"), true);
        }
    }
    for _ in 0..15 {
        world.reconcile();
        world.pass(1);
    }
    let states = world.states();
    assert!(states.iter().all(|state| state == "refused"), "{states:?}");
    assert_eq!(states.len(), 500);
}

#[test]
fn a_rule_with_a_thousand_operators_is_refused_before_it_is_translated() {
    let mut world = world();
    let port = |value| NumericOperator {
        and: false,
        less: false,
        greater: false,
        equal: true,
        value,
        size: 1,
    };
    let destination = Component::Destination(Pattern::from(bgp("203.0.113.7/32")));
    let ports = Component::Numeric(
        NumericField::Port,
        (0..1_000).map(|value| port(value % 200)).collect(),
    );
    let rule = FlowRule::new(Afi::Ipv4, &[destination, ports]).unwrap();
    world.flow(64_501, &rule);
    world.reconcile();
    assert_eq!(
        reason(&world),
        "component type 4 has 1000 operators: expected at most 256"
    );
}

#[test]
fn a_rule_is_translated_once_and_not_in_each_comparison() {
    let mut world = world();
    for host in 0..200u32 {
        world.announce(64_501, &format!("203.0.113.{host}/32"), true);
    }
    let port = NumericOperator {
        and: false,
        less: false,
        greater: false,
        equal: true,
        value: 53,
        size: 1,
    };
    let rule = |host: u32| {
        let destination = Pattern::from(bgp(&format!("203.0.113.{host}/32")));
        let components = [
            Component::Destination(destination),
            Component::Numeric(NumericField::Port, vec![port]),
        ];
        FlowRule::new(Afi::Ipv4, &components).unwrap()
    };
    for host in 0..200 {
        world.flow(64_501, &rule(host));
    }
    let mut rounds = 0;
    while world.states().len() < 400 {
        world.reconcile();
        world.pass(1);
        rounds += 1;
        assert!(rounds < 20);
    }
    assert_eq!(
        world.controller.translations(),
        400,
        "delayed rules are not translated"
    );
    // The first comparison of everything translates each rule once more, because the filters were not known before.
    for count in [800, 800, 800] {
        world.controller.exchange_changed();
        assert_eq!(world.reconcile().operations, []);
        assert_eq!(world.controller.translations(), count);
    }
    // Another action is another filter.
    world.flow_at_rate(64_501, &rule(7), 1_000_000.0);
    assert_eq!(world.reconcile().operations.len(), 2);
    world.controller.exchange_changed();
    assert_eq!(world.reconcile().operations, []);
    assert_eq!(world.controller.translations(), 803);
}

#[test]
fn a_large_rule_with_another_action_replaces_itself_in_the_same_comparison() {
    let mut world = world();
    let operator = |less, value, size| NumericOperator {
        and: less,
        less,
        greater: !less,
        equal: true,
        value,
        size,
    };
    let udp = NumericOperator {
        greater: false,
        ..operator(false, 17, 1)
    };
    // 16 masks for ports from 1 on, twice, and 48 values of DSCP: 12,288 entries of at most 20,000.
    let ports = vec![operator(false, 1, 2)];
    let dscps = vec![operator(false, 0, 1), operator(true, 47, 1)];
    let components = [
        Component::Destination(Pattern::from(bgp("203.0.113.7/32"))),
        Component::Numeric(NumericField::Protocol, vec![udp]),
        Component::Numeric(NumericField::DestinationPort, ports.clone()),
        Component::Numeric(NumericField::SourcePort, ports),
        Component::Numeric(NumericField::Dscp, dscps),
    ];
    let rule = FlowRule::new(Afi::Ipv4, &components).unwrap();
    world.flow(64_501, &rule);
    world.reconcile();
    assert_eq!(world.states(), ["active"]);
    assert_eq!(world.filters()[0].alternatives.len(), 47);
    world.flow_at_rate(64_501, &rule, 1_000_000.0);
    world.reconcile();
    assert_eq!(world.states(), ["active"]);
    assert_eq!(
        world.filters()[0].action,
        FilterAction::Shape { rate_kbps: 8_000 }
    );
    // A second rule of that size still exceeds the limit.
    let mut other = components;
    other[0] = Component::Destination(Pattern::from(bgp("203.0.113.8/32")));
    world.flow(64_501, &FlowRule::new(Afi::Ipv4, &other).unwrap());
    world.reconcile();
    assert_eq!(world.states(), ["active", "refused"]);
}

/// Returns an operation of the web page that creates a filter for UDP packets whose ports are both above 0: 256
/// entries.
fn page_filter(world: &World, destination: &str, peers: &[u32]) -> Operation {
    let mut matching = FilterMatch::to(destination.parse().unwrap());
    matching.protocol = Some(17);
    let ports = Ports {
        first: 1,
        last: 65_535,
    };
    matching.source_ports = vec![ports];
    matching.destination_ports = vec![ports];
    Operation::CreateFilter {
        account: Some(world.account(64_501)),
        matching,
        alternatives: Vec::new(),
        peers: peers.iter().map(|asn| world.account(*asn)).collect(),
        action: FilterAction::Drop,
        origin: FilterOrigin::Page,
        rank: 100,
        order: String::new(),
        state: FilterState::Active,
        valid_until: None,
        exempt_until: None,
        comment: None,
        external_ref: None,
    }
}

/// Returns the reason of the refusal of such a filter, if it is refused.
fn verdict(world: &World, peers: &[u32]) -> Option<String> {
    let Operation::CreateFilter {
        matching,
        peers,
        account,
        ..
    } = page_filter(world, "203.0.113.250/32", peers)
    else {
        panic!("another order")
    };
    let verdict = world
        .controller
        .verdict(&world.exchange, account.unwrap(), &matching, &peers, world.now);
    assert_eq!(verdict.allowed, verdict.reason.is_none());
    verdict.reason.map(|reason| reason.coded[0].code.to_owned())
}

#[test]
fn a_filter_of_the_page_is_refused_if_the_switches_have_no_room_for_its_entries() {
    let mut world = world();
    world.ends(64_502, 3);
    for number in 0..77 {
        let order = page_filter(&world, &format!("203.0.113.{number}/32"), &[]);
        world.order(vec![order]);
    }
    // 19,712 of 20,000 entries are in use: one more filter fits, but no filter with an entry for each of three
    // ends.
    assert_eq!(verdict(&world, &[]), None);
    assert_eq!(verdict(&world, &[64_502]), Some("filter-entries-full".to_owned()));
    let order = page_filter(&world, "203.0.113.77/32", &[]);
    world.order(vec![order]);
    assert_eq!(verdict(&world, &[]), Some("filter-entries-full".to_owned()));
    // A BGP rule is checked against the same number of entries.
    let first = world.exchange.filters.keys().next().copied().unwrap();
    world.order(vec![Operation::DeleteFilter { filter: first }]);
    let order = page_filter(&world, "203.0.113.78/32", &[64_502]);
    world.order(vec![order]);
    world.announce(64_501, "203.0.113.249/32", true);
    world.reconcile();
    assert_eq!(world.states().last().map(String::as_str), Some("refused"));
}

#[test]
fn a_filter_of_the_page_that_an_earlier_version_took_and_switches_cannot_implement_is_refused() {
    let mut world = World::of(Settings::default(), false, &[64_501, 64_502]);
    world.roas(&[("203.0.113.0/24", 64_501)]);
    world.announce(64_501, "203.0.113.0/24", false);
    world.reconcile();
    world.ends(64_502, 1);
    let mut order = page_filter(&world, "203.0.113.1/32", &[]);
    if let Operation::CreateFilter { matching, .. } = &mut order {
        // Zeros in the ports of later fragments match, too.
        matching.source_ports = Vec::new();
        matching.destination_ports = vec![Ports { first: 0, last: 63 }];
    }
    world.order(vec![order]);
    // Other payloads of a cache cause a comparison of all filters, as a start does.
    world.roas(&[("203.0.113.0/24", 64_501), ("198.51.100.0/24", 64_502)]);
    world.reconcile();
    assert_eq!(world.states(), ["refused"]);
    let reason = reason(&world);
    assert!(reason.ends_with("leave 0 out"), "{reason}");
}
