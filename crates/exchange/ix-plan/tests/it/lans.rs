//! Peering LANs and multipoint circuits in the pipeline, against the oracle.

use std::collections::BTreeSet;

use millrace_ix_model::state::CommercialState;
use millrace_ix_model::{
    EndRole, FilterAction, FilterMatch, FilterOrigin, FilterState, Operation, Ports, ServiceKind, TrunkKind,
};
use millrace_ix_plan::{EntryId, FlowId, Plan, Settings, plan};

use crate::circuits::{check, number};
use crate::fabric::{Delivered, Fabric};
use crate::frames::{BROADCAST, ipv4, udp};
use crate::lan_oracle;
use crate::lan_world::{Member, frame, lan, multipoint};
use crate::oracle::{Delivery, join, tags_of};
use crate::world::{NOW, Random, World, c_tag};

const SETTINGS: Settings = Settings {
    now: NOW,
    extensions: false,
};

/// Fails if two entries of equal priority overlap: the switch would be free to choose.
fn check_unambiguous(plan: &Plan) {
    for (switch, state) in &plan.switches {
        let flows: Vec<&FlowId> = state
            .keys()
            .filter_map(|id| match id {
                EntryId::Flow(flow) => Some(flow),
                _ => None,
            })
            .collect();
        for (at, one) in flows.iter().enumerate() {
            one.matching.to_match().unwrap();
            for two in flows[at + 1..]
                .iter()
                .filter(|two| (two.table, two.priority) == (one.table, one.priority))
            {
                if one.matching.overlaps(&two.matching) {
                    let entries = [one, two].map(|flow| &state[&EntryId::Flow((*flow).clone())]);
                    assert_eq!(entries[0], entries[1], "{switch}: {one:?} and {two:?}");
                }
            }
        }
    }
}

#[test]
fn a_peering_lan_delivers_what_the_oracle_says_and_nothing_else() {
    let (lans, frames) = (number("MILLRACE_EXCHANGES", 6), number("MILLRACE_FRAMES", 700));
    let (mut passed, mut asked, mut dropped) = (0, 0, 0);
    for seed in 0..lans {
        let (world, _, members) = lan(seed, 8, None, 50);
        let plan = plan(&world.exchange, &SETTINGS);
        assert_eq!(plan.problems, []);
        check_unambiguous(&plan);
        let mut fabric = Fabric::new(&world.exchange);
        fabric.install(&plan);
        let mut random = Random(seed ^ 0xabcd);
        for _ in 0..frames {
            let [me, you, third] = [0; 3].map(|_| random.pick(&members).clone());
            let config = &world.exchange.configs[&me.config];
            let port = *random.pick(&world.exchange.connections[&config.connection].ports);
            let sent = frame(&mut random, &me, &you, &third);
            let mut tags = tags_of(config.vlan, random.below(8) as u8);
            if random.below(10) == 0 {
                tags.push((0x8100, 0, 5));
            }
            let bytes = join(&sent.addresses(), &tags, &sent.rest());
            let wanted = lan_oracle::lan(&world.exchange, port.switch, port.port.raw(), &bytes);
            // Storm meters let fifty broadcast and multicast frames pass in a second, so frames are 100 ms
            // apart.
            fabric.now = fabric.now + core::time::Duration::from_millis(100);
            let delivered = fabric.send(port.switch, port.port.raw(), &bytes);
            check(wanted.as_ref(), &delivered, &|| {
                format!("seed {seed} {:?} {sent:02x?}", config.vlan)
            });
            match wanted {
                Some(_) if sent.dst[0] & 1 == 1 => asked += 1,
                Some(_) => passed += 1,
                None => dropped += 1,
            }
        }
        assert!(
            fabric.packet_ins > 0,
            "the engine sees what the end in quarantine sends"
        );
    }
    println!(
        "{lans} LANs: {passed} frames passed, {asked} questions became unicast, {dropped} dropped, 0 differences"
    );
    let least = lans * frames / 40;
    assert!(
        passed > least && asked > least && dropped > least,
        "{passed} {asked} {dropped}"
    );
}

#[test]
fn leaves_over_a_trunk_with_s_tags_are_refused_by_the_order() {
    for (kind, is_accepted) in [(TrunkKind::Vxlan, true), (TrunkKind::STag, false)] {
        let mut world = World::new(2, kind);
        let account = world.account("a");
        let service = world.service(account, ServiceKind::P2mpVc, None);
        for (at, role) in [(0, EndRole::Root), (1, EndRole::Root), (0, EndRole::Leaf)] {
            let port = world.port(at, if role == EndRole::Root { 1 } else { 2 });
            let connection = world.connection(account, vec![port]);
            let applied = world.apply(Operation::ConfigureEnd {
                service,
                connection,
                vlan: c_tag(5),
                capacity_mbps: None,
                role,
                asns: BTreeSet::new(),
                external_ref: None,
            });
            match applied {
                Ok(_) => assert!(is_accepted || role == EndRole::Root),
                Err(refusal) => {
                    assert!(!is_accepted && role == EndRole::Leaf, "{refusal}");
                    assert!(refusal.to_string().contains("S-tags"), "{refusal}");
                }
            }
        }
        assert_eq!(plan(&world.exchange, &SETTINGS).problems, []);
    }
}

/// Returns the deliveries that are missing, and the frames that left too many.
pub(crate) fn unmatched(
    mut wanted: Vec<Delivery>,
    mut delivered: Vec<Delivered>,
) -> (Vec<Delivery>, Vec<Delivered>) {
    let fits = |wanted: &Delivery, out: &Delivered| {
        wanted.switch == out.switch && wanted.ports.contains(&out.port) && wanted.frame == out.frame
    };
    delivered.retain(|out| match wanted.iter().position(|wanted| fits(wanted, out)) {
        Some(at) => {
            wanted.swap_remove(at);
            false
        }
        None => true,
    });
    (wanted, delivered)
}

#[test]
fn copies_of_multipoint_circuits_reach_whom_they_should_once() {
    for (seed, kind) in (0..6).zip([ServiceKind::Mp2mpVc, ServiceKind::P2mpVc].into_iter().cycle()) {
        let (mut world, _, members) = multipoint(seed, kind);
        let mut random = Random(seed ^ 0xabcd);
        // Frames to an end that is shut down go nowhere.
        let config = random.pick(&members).config;
        world.shut_down(config);
        let plan = plan(&world.exchange, &SETTINGS);
        assert_eq!(plan.problems, []);
        check_unambiguous(&plan);
        let mut fabric = Fabric::new(&world.exchange);
        fabric.install(&plan);
        let mut copies = 0;
        for _ in 0..300 {
            let registered: Vec<_> = world.exchange.macs.values().cloned().collect();
            let (me, you) = (random.pick(&registered).clone(), random.pick(&registered).clone());
            let config = &world.exchange.configs[&me.config];
            let port = *random.pick(&world.exchange.connections[&config.connection].ports);
            let dst = *random.pick(&[
                you.address.0,
                BROADCAST,
                [1, 0, 0x5e, 1, 2, 3],
                [2, 9, 9, 9, 9, 9],
            ]);
            let src = *random.pick(&[me.address.0, me.address.0, me.address.0, [2, 8, 8, 8, 8, 8]]);
            let mut tags = tags_of(config.vlan, random.below(8) as u8);
            if !tags.is_empty() && random.below(4) == 0 {
                tags.push((0x8100, 3, 77));
            }
            let bytes = join(
                &[dst, src].concat(),
                &tags,
                &[&[8, 0][..], &random.bytes(60)].concat(),
            );
            let wanted = lan_oracle::multipoint(&world.exchange, port.switch, port.port.raw(), &bytes);
            copies += wanted.len();
            let delivered = fabric.send(port.switch, port.port.raw(), &bytes);
            let (missing, more) = unmatched(wanted, delivered);
            let case = format!(
                "seed {seed} {kind:?} {:?} {:?} {dst:02x?}",
                config.vlan, config.role
            );
            assert!(
                missing.is_empty() && more.is_empty(),
                "{case}: missing {missing:?}, too many {more:?}"
            );
        }
        assert!(copies > 300, "{copies}");
    }
}

#[test]
fn a_filter_drops_where_frames_enter_and_touches_only_its_owner() {
    let (mut world, _, members) = lan(3, 6, None, 50);
    let account = |member: &Member, world: &World| world.exchange.configs[&member.config].account;
    // Three members of different accounts.
    let mut distinct = members.clone();
    distinct.dedup_by_key(|member| account(member, &world));
    let (me, you, third) = (distinct[0].clone(), distinct[1].clone(), distinct[2].clone());
    let victim = account(&you, &world);
    let filter = |rank, action, ports: Vec<Ports>, peers| Operation::CreateFilter {
        account: Some(victim),
        matching: FilterMatch {
            protocol: Some(17),
            source_ports: ports,
            ..FilterMatch::to("192.0.2.0/24".parse().unwrap())
        },
        alternatives: Vec::new(),
        peers,
        action,
        origin: FilterOrigin::Page,
        rank,
        order: String::new(),
        exempt_until: None,
        state: FilterState::Active,
        valid_until: None,
        comment: None,
        external_ref: None,
    };
    let ntp = Ports {
        first: 123,
        last: 124,
    };
    let from_me = BTreeSet::from([account(&me, &world)]);
    world
        .apply(filter(5, FilterAction::Drop, vec![ntp], BTreeSet::new()))
        .unwrap();
    world
        .apply(filter(
            2,
            FilterAction::Count,
            vec![Ports {
                first: 124,
                last: 124,
            }],
            from_me,
        ))
        .unwrap();
    world
        .apply(filter(
            1,
            FilterAction::Drop,
            vec![Ports { first: 0, last: 64 }],
            BTreeSet::new(),
        ))
        .unwrap();
    let plan = plan(&world.exchange, &SETTINGS);
    let [problem] = &plan.problems[..] else {
        panic!("{:?}", plan.problems)
    };
    assert!(problem.message.contains("0 to 64 are 65"), "{problem:?}");
    check_unambiguous(&plan);
    let mut fabric = Fabric::new(&world.exchange);
    fabric.install(&plan);
    let mut passes = |from: &Member, to: &Member, port: u16| {
        let config = &world.exchange.configs[&from.config];
        let at = world.exchange.connections[&config.connection].ports[0];
        let sent = ipv4(to.mac, from.mac, to.v4, 17, &udp(port, 4000));
        let bytes = join(&sent.addresses(), &tags_of(config.vlan, 0), &sent.rest());
        fabric.on_trunks = 0;
        let is_out = !fabric.send(at.switch, at.port.raw(), &bytes).is_empty();
        assert!(is_out || fabric.on_trunks == 0, "a drop is at the ingress");
        is_out
    };
    assert!(
        !passes(&me, &you, 123) && !passes(&third, &you, 123),
        "dropped from everywhere"
    );
    assert!(passes(&me, &you, 125), "another port");
    assert!(passes(&me, &third, 123), "another destination");
    assert!(passes(&you, &me, 123), "the other direction");
    assert!(passes(&me, &you, 124), "the lower rank counts and passes");
    assert!(!passes(&third, &you, 124), "and only from the peer that it names");
}

#[test]
fn a_change_of_filters_plans_the_accounts_concerned_as_a_whole_plan_does() {
    let (mut world, _, members) = lan(3, 6, None, 50);
    let accounts: BTreeSet<_> = members
        .iter()
        .map(|member| world.exchange.configs[&member.config].account)
        .collect();
    let mut before = world.exchange.clone();
    for number in 0..60u32 {
        let owner = accounts.iter().nth(number as usize % accounts.len()).copied();
        let peers = if number % 5 == 0 {
            accounts.iter().copied().take(1).collect()
        } else {
            BTreeSet::new()
        };
        let destination = format!("192.0.2.{}/{}", (number % 4) * 64, 26 + number % 2);
        world
            .apply(Operation::CreateFilter {
                account: owner,
                matching: FilterMatch {
                    protocol: Some(if number % 3 == 0 { 6 } else { 17 }),
                    ..FilterMatch::to(destination.parse().unwrap())
                },
                alternatives: Vec::new(),
                peers,
                action: FilterAction::Drop,
                origin: FilterOrigin::Flowspec,
                rank: 300,
                order: format!("{:02}", (number * 7) % 60),
                exempt_until: None,
                state: FilterState::Active,
                valid_until: None,
                comment: None,
                external_ref: None,
            })
            .unwrap();
        let changed = millrace_ix_plan::phases(&before, &world.exchange, &SETTINGS);
        let whole =
            millrace_ix_plan::phases_of_plans(&plan(&before, &SETTINGS), &plan(&world.exchange, &SETTINGS));
        assert_eq!(changed, whole, "filter {number}");
        assert!(!changed.is_empty(), "filter {number}");
        before = world.exchange.clone();
    }
    // The removal of an end removes its entries.
    let mut fewer = world.exchange.clone();
    fewer.configs.remove(&members[0].config);
    let changed = millrace_ix_plan::phases(&before, &fewer, &SETTINGS);
    let whole = millrace_ix_plan::phases_of_plans(&plan(&before, &SETTINGS), &plan(&fewer, &SETTINGS));
    assert_eq!(changed, whole);
}

#[test]
fn a_lan_that_ends_leaves_nothing_of_its_quarantine_behind() {
    let (world, service, _) = lan(7, 4, None, 50);
    let mut ended = world.exchange.clone();
    ended.services.get_mut(&service).unwrap().state = CommercialState::DecommissionRequested;
    let mut switches = plan(&world.exchange, &SETTINGS).switches;
    let is_stray =
        |id: &EntryId| matches!(id, EntryId::Flow(flow) if flow.table.0 == 0 && flow.priority.0 == 1);
    assert!(switches.values().any(|state| state.keys().any(is_stray)));
    let changed = millrace_ix_plan::phases(&world.exchange, &ended, &SETTINGS);
    for (switch, modifications) in [changed.stage, changed.flip, changed.clean].into_iter().flatten() {
        let state = switches.get_mut(&switch).unwrap();
        for change in modifications {
            match change.to {
                Some(entry) => drop(state.insert(change.key, entry)),
                None => drop(state.remove(&change.key)),
            }
        }
    }
    assert_eq!(switches, plan(&ended, &SETTINGS).switches);
}
