//! Worlds of all kinds, their plans as a switch reports them, and packets as values of variables.

use std::collections::{BTreeMap, BTreeSet};

use millrace_flow::{Field, FlowKey, Match};
use millrace_ix_model::{
    AccountId, Exchange, FilterAction, FilterMatch, FilterOrigin, FilterState, Operation, ServiceKind,
};
use millrace_ix_plan::{Entry, EntryId, GroupKind, Plan, Settings, SwitchState};
use millrace_ix_verify::{
    Checker, Content, Fabric, Finding, FlowEntry, GroupEntry, GroupType, Register, Var, Way,
};
use millrace_wire::{Depth, Layers};

use crate::lan_world::{Member, lan};
use crate::oracle;
use crate::world::{NOW, Random, World, random_circuits};

pub(crate) const SETTINGS: Settings = Settings {
    now: NOW,
    extensions: false,
};

/// Returns the content of a switch as it reports it.
pub(crate) fn content(state: &SwitchState) -> Content {
    let mut content = Content::default();
    for (id, entry) in state {
        add(&mut content, id, Some(entry));
    }
    content
}

/// Adds, replaces or removes an entry.
pub(crate) fn add(content: &mut Content, id: &EntryId, entry: Option<&Entry>) {
    match (id, entry) {
        (EntryId::Flow(id), Some(Entry::Flow(flow))) => content.add_flow(FlowEntry {
            table: id.table,
            priority: id.priority,
            matching: id.matching.to_match().unwrap(),
            cookie: flow.cookie.0,
            instructions: flow.instructions.clone(),
        }),
        (EntryId::Flow(id), _) => {
            let matching: Match = id.matching.to_match().unwrap();
            content.remove_flow(id.table, id.priority, &matching);
        }
        (EntryId::Group(number), entry) => content.set_group(
            *number,
            match entry {
                Some(Entry::Group(group)) => Some(GroupEntry {
                    kind: match group.kind {
                        GroupKind::All => GroupType::All,
                        GroupKind::Select => GroupType::Select,
                        GroupKind::Indirect => GroupType::Indirect,
                        GroupKind::FastFailover => GroupType::FastFailover,
                    },
                    buckets: group.buckets.clone(),
                }),
                _ => None,
            },
        ),
        (EntryId::Meter(number), entry) => content.set_meter(*number, entry.is_some()),
    }
}

/// Returns the fabric of a plan, with the ports and trunks of the register.
pub(crate) fn fabric(plan: &Plan, register: &Register) -> Fabric {
    let mut fabric = Fabric {
        switches: plan
            .switches
            .iter()
            .map(|(id, state)| (id.0, content(state)))
            .collect(),
        ..Fabric::default()
    };
    register.wire(&mut fabric);
    fabric
}

/// Returns the findings of a full check, without V7.
pub(crate) fn findings(exchange: &Exchange, plan: &Plan) -> Vec<Finding> {
    let register = Register::of(exchange, NOW);
    let fabric = fabric(plan, &register);
    let mut checker = Checker::new(&fabric, &register);
    checker.all();
    checker.into_findings()
}

/// Returns an exchange for a seed: circuits, a peering LAN or a multipoint circuit, some with filters.
pub(crate) fn world(seed: u64) -> (World, Vec<Member>) {
    let mut random = Random(seed ^ 0x5eed);
    let (mut world, members) = match seed % 3 {
        0 => (random_circuits(seed, None), Vec::new()),
        1 => {
            let (world, _, members) = lan(seed, 6, None, 50);
            (world, members)
        }
        _ => multipoint(seed),
    };
    if seed % 2 == 1 {
        let accounts: Vec<AccountId> = world.exchange.accounts.keys().copied().collect();
        for number in 0..4u64 {
            let account = *random.pick(&accounts);
            let matching = FilterMatch {
                protocol: Some(17),
                ..FilterMatch::to(format!("192.0.2.{}/32", random.below(8)).parse().unwrap())
            };
            let peers = if number == 3 {
                [*random.pick(&accounts)].into()
            } else {
                [].into()
            };
            let action = if number % 2 == 0 {
                FilterAction::Drop
            } else {
                FilterAction::Count
            };
            let _ = world.apply(filter(account, matching, peers, action));
        }
    }
    (world, members)
}

/// Returns the order of an active filter.
pub(crate) fn filter(
    account: AccountId,
    matching: FilterMatch,
    peers: BTreeSet<AccountId>,
    action: FilterAction,
) -> Operation {
    Operation::CreateFilter {
        account: Some(account),
        matching,
        alternatives: Vec::new(),
        peers,
        action,
        origin: FilterOrigin::Page,
        rank: 0,
        order: String::new(),
        state: FilterState::Active,
        valid_until: None,
        exempt_until: None,
        external_ref: None,
        comment: None,
    }
}

/// Returns a world with a multipoint circuit; every third has an end that is shut down.
fn multipoint(seed: u64) -> (World, Vec<Member>) {
    let kind = if seed % 4 < 2 {
        ServiceKind::P2mpVc
    } else {
        ServiceKind::Mp2mpVc
    };
    let (mut world, _, members) = crate::lan_world::multipoint(seed, kind);
    let mut random = Random(seed);
    if random.below(3) == 0 {
        let config = random.pick(&members).config;
        world.shut_down(config);
    }
    (world, members)
}

/// A packet as values of variables.
pub(crate) struct Packet {
    key: FlowKey,
    tags: Vec<oracle::Tag>,
}

impl Packet {
    pub(crate) fn of(frame: &[u8]) -> Packet {
        let (addresses, tags, rest) = oracle::split(frame);
        let untagged = [addresses, rest].concat();
        let mut key = FlowKey::default();
        key.extract(&untagged, &Layers::parse(&untagged, Depth::All));
        Packet { key, tags }
    }

    fn value(&self, var: Var) -> Option<u128> {
        match var {
            Var::Field(field) => Some(self.key.field(field)),
            Var::Vid(at) => self.tags.get(usize::from(at)).map(|tag| tag.2.into()),
            Var::Pcp(at) => self.tags.get(usize::from(at)).map(|tag| tag.1.into()),
        }
    }

    /// Returns true if the packet is in a cube.
    pub(crate) fn is_within(&self, cube: &millrace_ix_verify::Cube) -> bool {
        self.is_in(cube)
    }

    fn is_in(&self, cube: &millrace_ix_verify::Cube) -> bool {
        cube.iter()
            .all(|(var, value, mask)| self.value(var).is_some_and(|is| (is ^ value) & mask == 0))
    }

    /// Returns true if the packet is one of a way.
    pub(crate) fn takes(&self, way: &Way) -> bool {
        let count = self.tags.len();
        let fits =
            count == usize::from(way.frames.seen) || way.frames.more && count > usize::from(way.frames.seen);
        let space = &way.frames.space;
        fits && self.is_in(&space.cube) && !space.without.iter().any(|cube| self.is_in(cube))
    }
}

/// Returns the frames that a way makes of a frame, by the tags and fields that it sets.
pub(crate) fn sent(way: &Way, frame: &[u8]) -> Vec<u8> {
    let (addresses, tags, rest) = oracle::split(frame);
    let mut addresses = addresses.to_vec();
    for (field, value) in &way.frames.set {
        assert_eq!(*field, Field::EthDst, "no plan sets another field of the packet");
        addresses[..6].copy_from_slice(&value.to_be_bytes()[10..]);
    }
    let known = way.frames.tags.iter().rev().map(|tag| {
        let original = tag.origin.map(|at| tags[usize::from(at)]);
        (
            tag.ethertype.or(original.map(|tag| tag.0)).unwrap(),
            tag.pcp.or(original.map(|tag| tag.1)).unwrap(),
            tag.vid.or(original.map(|tag| tag.2)).unwrap(),
        )
    });
    let others = tags.iter().skip(way.frames.seen.into()).copied();
    let all: Vec<_> = known.chain(others).collect();
    oracle::join(&addresses, &all, rest)
}

/// Returns frames for the ends of a world: those of the planner's tests.
pub(crate) fn frames(world: &World, members: &[Member], count: usize, seed: u64) -> Vec<(u32, u32, Vec<u8>)> {
    let mut random = Random(seed);
    let mut all = Vec::new();
    for _ in 0..count {
        if members.is_empty() {
            let (switch, port, frame) = crate::world::random_frame(world, &mut random);
            all.push((switch.0, port, frame));
            continue;
        }
        let [me, you, third] = [0; 3].map(|_| random.pick(members).clone());
        let config = &world.exchange.configs[&me.config];
        let port = *random.pick(&world.exchange.connections[&config.connection].ports);
        let sent = crate::lan_world::frame(&mut random, &me, &you, &third);
        let mut tags = oracle::tags_of(config.vlan, random.below(8) as u8);
        if random.below(10) == 0 {
            tags.push((0x8100, 0, 5));
        }
        all.push((
            port.switch.0,
            port.port.raw(),
            oracle::join(&sent.addresses(), &tags, &sent.rest()),
        ));
    }
    all
}

/// The frames that leave a fabric, by place.
pub(crate) type Delivered = BTreeMap<(u32, u32, Vec<u8>), usize>;
