//! The properties of section 8 of the design, checked end by end.
//!
//! ```text
//! V1  a frame that enters outside of a service never leaves in it     V5  a filter changes only what leaves by its owner
//! V2  an admitted frame leaves exactly once, where it should          V6  all sites treat a frame alike
//! V3  no loop, and nothing back to the sender's end                   V7  no entry is dead or shadowed
//! V4  no frame of a peering LAN is copied
//! ```

use std::collections::{BTreeMap, BTreeSet};

use millrace_flow::Field;
use millrace_ix_model::{ConfigId, ServiceId};

use crate::frames::{Frames, Tag};
use crate::property::{Finding, Property};
use crate::register::{End, Register, Tags, filter_of};
use crate::space::{Cube, Var};
use crate::trace::{Fabric, Outcome, SwitchNumber, Trace, Way, Why};
use crate::words;

/// The bits of the metadata with the end by which a frame leaves: docs/exchange.md.
const EGRESS_END: u64 = 0xf_ffff;

/// The largest number of findings of one check; one is enough to stop a change.
const FINDINGS_MAX: usize = 100;

/// The checks of a fabric against a register.
#[derive(Debug)]
pub struct Checker<'a> {
    pub(crate) fabric: &'a Fabric,
    pub(crate) register: &'a Register,
    findings: BTreeSet<Finding>,
    /// The number of ways that were followed.
    pub ways: usize,
}

/// An end at which frames leave, with the place of their tags.
pub(crate) struct Left<'a> {
    pub(crate) id: ConfigId,
    pub(crate) end: &'a End,
}

impl<'a> Checker<'a> {
    /// Returns a checker without findings.
    pub fn new(fabric: &'a Fabric, register: &'a Register) -> Checker<'a> {
        Checker {
            fabric,
            register,
            findings: BTreeSet::new(),
            ways: 0,
        }
    }

    /// Returns the findings, at most a hundred.
    pub fn into_findings(self) -> Vec<Finding> {
        self.findings.into_iter().collect()
    }

    pub(crate) fn found(&mut self, property: Property, service: Option<ServiceId>, text: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.insert(Finding {
                property,
                service,
                text,
            });
        }
    }

    /// Returns the ways of frames from a port.
    pub(crate) fn ways(&mut self, switch: SwitchNumber, port: u32, frames: Frames) -> Vec<Way> {
        let register = self.register;
        let is_filter =
            |cookie: u64| filter_of(cookie).is_some_and(|filter| register.filters.contains_key(&filter));
        let mut ways = Vec::new();
        let mut visit = |way: &Way| ways.push(way.clone());
        Trace::new(self.fabric, &is_filter, &mut visit).enter(switch, port, frames);
        self.ways += ways.len();
        ways
    }

    /// Checks everything: all ends of all services, frames of no end at all ports, the filters and the groups of all switches.
    pub fn all(&mut self) {
        for service in self.register.services.keys() {
            self.service(*service, None);
        }
        for (switch, ports) in &self.fabric.ports {
            for port in ports {
                self.outside(*switch, *port);
            }
        }
        self.filters();
        self.groups();
    }

    /// Checks a service: the frames from all of its ends, or from some.
    pub fn service(&mut self, id: ServiceId, only: Option<&BTreeSet<ConfigId>>) {
        let register = self.register;
        let Some(circuit) = register.services.get(&id) else {
            return;
        };
        for end in circuit
            .ends
            .iter()
            .filter(|end| only.is_none_or(|only| only.contains(end)))
        {
            if let Some(from) = register.ends.get(end) {
                self.check_end(id, circuit, *end, from);
            }
        }
    }

    /// Returns the frames that belong to an end by their tags.
    pub(crate) fn frames_of(end: &End) -> Frames {
        match end.tags {
            Tags::Transparent => Frames::all(),
            Tags::Untagged => Frames::with_tags(0, false),
            Tags::One { vid, .. } => {
                let mut frames = Frames::with_tags(1, true);
                frames.space.cube = Cube::any().with(Var::Vid(0), vid);
                frames
            }
            Tags::Two { outer, inner, .. } => {
                let mut frames = Frames::with_tags(2, true);
                frames.space.cube = Cube::any().with(Var::Vid(0), outer).with(Var::Vid(1), inner);
                frames
            }
        }
    }

    /// Checks that frames which belong to no end of a port go nowhere.
    pub fn outside(&mut self, switch: SwitchNumber, port: u32) {
        let ends: Vec<Tags> = self
            .register
            .ends_at(switch, port)
            .map(|(_, end)| end.tags)
            .collect();
        if ends.contains(&Tags::Transparent) {
            return;
        }
        let mut sets = Vec::new();
        if !ends.contains(&Tags::Untagged) {
            sets.push(Frames::with_tags(0, false));
        }
        let of_one = ends.iter().filter_map(|tags| match tags {
            Tags::One { vid, .. } => Some(Cube::any().with(Var::Vid(0), *vid)),
            _ => None,
        });
        let of_one: Vec<Cube> = of_one.collect();
        let of_two = ends.iter().filter_map(|tags| match tags {
            Tags::Two { outer, inner, .. } => {
                Some(Cube::any().with(Var::Vid(0), *outer).with(Var::Vid(1), *inner))
            }
            _ => None,
        });
        let of_two: Vec<Cube> = of_two.collect();
        let with_tags = |count, more, without: Vec<Cube>| {
            let mut frames = Frames::with_tags(count, more);
            frames.space.without = without;
            frames
        };
        if of_two.is_empty() {
            sets.push(with_tags(1, true, of_one));
        } else {
            sets.push(with_tags(1, false, of_one.clone()));
            sets.push(with_tags(2, true, [of_one, of_two].concat()));
        }
        for frames in sets {
            for way in self.ways(switch, port, frames) {
                let leaves = match way.outcome {
                    Outcome::Delivered { .. } | Outcome::Loop { .. } | Outcome::Unknown { .. } => true,
                    Outcome::Dropped { .. } | Outcome::Controller { .. } | Outcome::Unreported { .. } => {
                        false
                    }
                };
                if !leaves || !way.is_real {
                    continue;
                }
                if let Some(example) = way.frames.space.example() {
                    let text = format!(
                        "{} at port {port} of {}: the frames belong to no end, and {}",
                        words::packets(&example),
                        self.register.switch_name(switch),
                        self.outcome(&way)
                    );
                    self.found(Property::Isolation, None, text);
                }
            }
        }
    }

    /// Returns the end of a way in words.
    pub(crate) fn outcome(&self, way: &Way) -> String {
        match way.outcome {
            Outcome::Delivered { switch, port } => match self.left(switch, port, &way.frames.tags) {
                Some(left) => {
                    let service = self.register.services.get(&left.end.service);
                    let name = service.map_or("", |service| &service.name);
                    format!("leave at {} of \"{name}\"", left.end.name)
                }
                None => format!("leave by port {port} of {}", self.register.switch_name(switch)),
            },
            Outcome::Dropped { switch, why } => {
                let place = self.register.switch_name(switch);
                match (why, way.filter.and_then(filter_of)) {
                    (Why::Entry { cookie, .. }, _) if filter_of(cookie).is_some() => {
                        let owner = filter_of(cookie).and_then(|id| self.register.filters.get(&id));
                        let name = owner.map_or("a filter", |owner| &owner.name);
                        format!("are dropped at {place} by filter {name}")
                    }
                    (Why::NoEntry(table), _) => {
                        format!("are dropped at {place}: table {table} has no entry for them")
                    }
                    (Why::Entry { table, .. }, _) => {
                        format!("are dropped at {place} by an entry of table {table}")
                    }
                    (Why::IngressPort, _) => {
                        format!("are dropped at {place}: their output is the port by which they came")
                    }
                    (Why::Group(group), _) => format!("are dropped at {place}: group {group} has no bucket"),
                }
            }
            Outcome::Controller { switch } => {
                format!("go to the engine at {}", self.register.switch_name(switch))
            }
            Outcome::Unreported { switch } => {
                format!(
                    "reach {}, which has not reported its entries",
                    self.register.switch_name(switch)
                )
            }
            Outcome::Loop { switch } => format!(
                "circle between switches, through {}",
                self.register.switch_name(switch)
            ),
            Outcome::Unknown { switch, reason } => {
                format!("meet, at {}, {reason}", self.register.switch_name(switch))
            }
        }
    }

    /// Returns the end at which frames with these tags leave by a port.
    pub(crate) fn left(&self, switch: SwitchNumber, port: u32, tags: &[Tag]) -> Option<Left<'a>> {
        let has = |at: usize, vid: u16, ethertype: u16| {
            let tag = tags.len().checked_sub(at + 1).and_then(|at| tags.get(at));
            tag.is_some_and(|tag| {
                tag.vid == Some(vid) && tag.ethertype.is_none_or(|other| other == ethertype)
            })
        };
        let fits = |end: &End| match end.tags {
            Tags::Two {
                outer,
                inner,
                ethertype,
            } => has(0, outer, ethertype) && has(1, inner, 0x8100),
            Tags::One { vid, ethertype } => has(0, vid, ethertype),
            Tags::Untagged | Tags::Transparent => true,
        };
        let register = self.register;
        let ends = register.ends_at(switch, port).filter(|(_, end)| fits(end));
        let found = ends.max_by_key(|(_, end)| end.tags.count());
        found.map(|(id, end)| Left { id, end })
    }

    pub(crate) fn is_own_filter(&self, cookie: u64) -> bool {
        filter_of(cookie).is_some_and(|filter| self.register.filters.contains_key(&filter))
    }

    /// Checks an entry of a filter by itself: it may match only frames that leave at an end of the filter's owner, and may
    /// only drop them, limit them, or let them continue. This is quick, so that it can gate a thousand filters a second.
    pub fn filter_entry(&mut self, switch: SwitchNumber, flow: &crate::content::FlowEntry) {
        let Some(owner) = filter_of(flow.cookie).and_then(|id| self.register.filters.get(&id)) else {
            return;
        };
        let matched = flow.matching.field(Field::Metadata);
        let end = matched.map(|given| {
            (
                given.value as u64 & EGRESS_END,
                given.mask.map_or(EGRESS_END, |mask| mask as u64),
            )
        });
        let is_own = end.is_some_and(|(index, mask)| {
            mask & EGRESS_END == EGRESS_END && self.register.has_end(owner.account, index as u32)
        });
        let instructions = &flow.instructions;
        let changes_frames = instructions.actions().next().is_some() || instructions.write_metadata.is_some();
        if !is_own || changes_frames {
            let fault = if is_own {
                "changes frames"
            } else {
                "matches frames that its owner does not get"
            };
            let text = format!(
                "the entry {:?} of filter {} at {} {fault}",
                flow.matching,
                owner.name,
                self.register.switch_name(switch)
            );
            self.found(Property::Filter, None, text);
        }
    }

    /// Checks that all switches have the same entries of filters.
    pub fn filters(&mut self) {
        let mut by_entry: BTreeMap<String, (u64, BTreeSet<SwitchNumber>)> = BTreeMap::new();
        for (switch, content) in &self.fabric.switches {
            for (table, entry) in content
                .entries()
                .filter(|(_, entry)| self.is_own_filter(entry.flow.cookie))
            {
                let flow = &entry.flow;
                let text = format!(
                    "{table} {} {:?} {:?}",
                    flow.priority.0,
                    entry.cube(),
                    flow.instructions
                );
                by_entry
                    .entry(text)
                    .or_insert((flow.cookie, BTreeSet::new()))
                    .1
                    .insert(*switch);
            }
        }
        let all: BTreeSet<SwitchNumber> = self.fabric.switches.keys().copied().collect();
        for (cookie, switches) in by_entry.into_values() {
            for missing in all.difference(&switches) {
                let owner = filter_of(cookie).and_then(|id| self.register.filters.get(&id));
                let name = owner.map_or("", |owner| &owner.name);
                let text = format!(
                    "an entry of filter {name} is not at {}, but at another switch",
                    self.register.switch_name(*missing)
                );
                self.found(Property::Uniform, None, text);
            }
        }
    }
}
