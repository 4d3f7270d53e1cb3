//! Faults: a plan with one entry changed is found, if a packet can tell it apart.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use millrace_flow::{Action, Field, SetField, WriteMetadata};
use millrace_ix_model::SwitchId;
use millrace_ix_plan::{Entry, EntryId, FlowId, GroupKind, Matching, Plan, plan};
use millrace_types::{PortNo, Priority, TableId};

use crate::fabric::Fabric;
use crate::lan_world::Member;
use crate::right::number;
use crate::support::{Delivered, SETTINGS, findings, frames, world};
use crate::world::{Random, World};

/// The kinds of faults.
const KINDS: [&str; 10] = [
    "removed",
    "drops",
    "other output",
    "other value",
    "other end in the metadata",
    "other next table",
    "one condition less",
    "other priority",
    "one action less",
    "other bucket",
];

/// Returns the list of an entry's actions with one fault.
fn fault_in(actions: &mut Vec<Action>, kind: &str, random: &mut Random) -> bool {
    let places: Vec<usize> = (0..actions.len())
        .filter(|at| match (&actions[*at], kind) {
            (Action::Output { port, .. }, "other output" | "other bucket") => *port != PortNo::CONTROLLER,
            (Action::SetField(_), "other value") => true,
            (Action::SetField(_), "other bucket") => true,
            (Action::PopVlan | Action::SetField(_), "one action less") => true,
            _ => false,
        })
        .collect();
    if places.is_empty() {
        return false;
    }
    let at = *random.pick(&places);
    match actions[at] {
        Action::Output { .. } => actions[at] = Action::output(PortNo::from_raw(1 + random.below(12) as u32)),
        Action::SetField(set) if kind != "one action less" => {
            let value = match set.field() {
                Field::VlanVid => u128::from(0x1000 | (1 + random.below(60))),
                Field::VlanPcp => u128::from(random.below(8)),
                Field::EthDst => 0x0200_0000_0700 + u128::from(random.below(8)),
                _ => set.value() ^ 1,
            };
            actions[at] = Action::SetField(SetField::new(set.field(), value).unwrap());
        }
        _ => drop(actions.remove(at)),
    }
    true
}

/// Puts one fault of a kind into a plan. Returns its description.
fn mutate(plan: &mut Plan, kind: &str, random: &mut Random) -> Option<String> {
    let switches: Vec<SwitchId> = plan.switches.keys().copied().collect();
    let switch = *random.pick(&switches);
    let state = plan.switches.get_mut(&switch)?;
    let wanted: Vec<EntryId> = state
        .keys()
        .filter(|id| match id {
            EntryId::Flow(_) => kind != "other bucket",
            EntryId::Group(_) => kind == "other bucket",
            EntryId::Meter(_) => false,
        })
        .cloned()
        .collect();
    if wanted.is_empty() {
        return None;
    }
    let id = random.pick(&wanted).clone();
    let mut entry = state.remove(&id)?;
    let mut new_id = id.clone();
    let done = match (&mut entry, kind) {
        (_, "removed") => {
            return Some(format!("{switch}: {id:?} is removed"));
        }
        (Entry::Flow(flow), "drops") => {
            flow.instructions = Default::default();
            true
        }
        (Entry::Flow(flow), "other output" | "other value" | "one action less") => {
            let mut actions = flow
                .instructions
                .apply_actions
                .clone()
                .unwrap_or_default()
                .to_vec();
            let done = fault_in(&mut actions, kind, random);
            flow.instructions.apply_actions =
                Some(actions.into_boxed_slice()).filter(|list| !list.is_empty());
            done
        }
        (Entry::Flow(flow), "other end in the metadata") => match &mut flow.instructions.write_metadata {
            Some(WriteMetadata { value, mask }) => {
                let bit = 1 << random.pick(&[0u32, 1, 2, 20, 21, 39, 40, 41]);
                *value ^= bit & *mask;
                bit & *mask != 0
            }
            None => false,
        },
        (Entry::Flow(flow), "other next table") => match (&mut flow.instructions.goto_table, &id) {
            (Some(next), EntryId::Flow(flow_id)) => {
                let table = flow_id.table.0 + 1 + random.below(u64::from(7 - flow_id.table.0)) as u8;
                let changed = next.0 != table;
                *next = TableId(table);
                changed
            }
            _ => false,
        },
        (Entry::Flow(_), "one condition less" | "other priority") => {
            let EntryId::Flow(flow_id) = &id else {
                return None;
            };
            let changed = if kind == "other priority" {
                FlowId {
                    priority: Priority(*random.pick(&[1, 99, 105, 155, 40_000, 64_000])),
                    ..flow_id.clone()
                }
            } else {
                let fields: Vec<Field> = Field::ALL
                    .into_iter()
                    .filter(|field| flow_id.matching.field(*field).is_some())
                    .collect();
                if fields.is_empty() {
                    return None;
                }
                let less = *random.pick(&fields);
                let matching =
                    fields
                        .iter()
                        .filter(|field| **field != less)
                        .fold(Matching::any(), |matching, field| {
                            let (value, mask) = flow_id.matching.field(*field).unwrap();
                            matching.masked(*field, value, mask.unwrap_or(field.max_value()))
                        });
                FlowId {
                    matching,
                    ..flow_id.clone()
                }
            };
            let is_valid = changed.matching.to_match().is_ok() && changed != *flow_id;
            new_id = EntryId::Flow(changed);
            is_valid && !state.contains_key(&new_id)
        }
        (Entry::Group(group), "other bucket") => {
            if group.buckets.is_empty() {
                return None;
            }
            let at = random.below(group.buckets.len() as u64) as usize;
            let mut actions = group.buckets[at].actions.to_vec();
            let done = fault_in(&mut actions, kind, random);
            group.buckets[at].actions = actions.into_boxed_slice();
            done
        }
        _ => false,
    };
    let text = format!("{switch}: {kind}: {id:?} becomes {new_id:?} {entry:?}");
    state.insert(new_id, entry);
    done.then_some(text)
}

/// Returns what leaves for each frame.
fn deeds(world: &World, plan: &Plan, frames: &[(u32, u32, Vec<u8>)]) -> Vec<Delivered> {
    let mut switches = Fabric::new(&world.exchange);
    switches.install(plan);
    let mut all = Vec::new();
    for (switch, port, frame) in frames {
        switches.now = switches.now + core::time::Duration::from_millis(100);
        let mut delivered: Delivered = BTreeMap::new();
        // A frame that circles is a deed, too: it is cut after a few hops.
        let (mut waiting, out) = switches.step(SwitchId(*switch), *port, frame);
        let mut count = |found: Vec<crate::fabric::Delivered>| {
            for found in found {
                *delivered
                    .entry((found.switch.0, found.port, found.frame))
                    .or_default() += 1;
            }
        };
        count(out);
        let mut hops = 0;
        while let Some(next) = waiting.pop().filter(|_| hops < 12) {
            hops += 1;
            let (between, out) = switches.step(next.switch, next.port, &next.frame);
            waiting.extend(between);
            count(out);
        }
        all.push(delivered);
    }
    all
}

#[test]
fn a_fault_that_a_packet_can_tell_apart_is_found() {
    let wanted = number("MILLRACE_MUTANTS", 20);
    let mut told_apart: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut seed, mut found_all) = (0, 0);
    while found_all < wanted {
        seed += 1;
        assert!(seed < 100 * wanted, "too few mutants differ: {told_apart:?}");
        let (world, members): (World, Vec<Member>) = world(seed % 30);
        let right = plan(&world.exchange, &SETTINGS);
        let mut random = Random(seed);
        let kind = KINDS[seed as usize % KINDS.len()];
        let mut wrong = right.clone();
        let Some(fault) = mutate(&mut wrong, kind, &mut random) else {
            continue;
        };
        let frames = frames(&world, &members, 120, seed);
        let was = deeds(&world, &right, &frames);
        // A switch refuses some faults, such as a VID that is set where the match does not say that there is a tag.
        let attempt = AssertUnwindSafe(|| deeds(&world, &wrong, &frames));
        let Ok(is) = std::panic::catch_unwind(attempt) else {
            continue;
        };
        let Some(at) = (0..frames.len()).find(|at| was[*at] != is[*at]) else {
            continue;
        };
        *told_apart.entry(kind).or_default() += 1;
        found_all += 1;
        let found = findings(&world.exchange, &wrong);
        assert!(
            !found.is_empty(),
            "seed {seed}: {fault} is not found, but {:02x?}: {:02x?} becomes {:02x?}",
            frames[at],
            was[at],
            is[at]
        );
    }
    println!("{found_all} faults that packets tell apart, all found: {told_apart:?}");
    assert!(told_apart.len() >= 6, "{told_apart:?}");
}

#[test]
fn a_bucket_that_watches_another_port_than_it_sends_by_is_found() {
    let mut changed = 0;
    for seed in 0..30 {
        let (world, _) = world(seed);
        let mut plan = plan(&world.exchange, &SETTINGS);
        let mut groups = plan.switches.values_mut().flat_map(BTreeMap::values_mut);
        let several = groups.find_map(|entry| match entry {
            Entry::Group(group) if group.kind == GroupKind::Select && group.buckets.len() > 1 => {
                Some(&mut group.buckets)
            }
            _ => None,
        });
        let Some(buckets) = several else {
            continue;
        };
        changed += 1;
        let watched = buckets[1].watch_port;
        buckets[0].watch_port = watched;
        let found = findings(&world.exchange, &plan);
        assert!(
            found.iter().any(|finding| finding
                .text
                .contains(&format!("watches port {watched} and sends by port"))),
            "world {seed}: port {watched}: {found:?}"
        );
    }
    assert!(changed > 0, "a world has a LAG");
}
