//! The properties V1 to V5 for the frames of one end: where they may leave, where they must leave, and how often.

use std::collections::{BTreeMap, BTreeSet};

use millrace_flow::Field;
use millrace_ix_model::{ConfigId, ServiceId, ServiceKind};

use crate::check::{Checker, Left};
use crate::frames::{Frames, Tag};
use crate::lan::{Destination, admitted, destinations, field};
use crate::property::Property;
use crate::register::{Circuit, End, filter_of};
use crate::space::{Cube, Space, Var};
use crate::trace::{Outcome, Way, Why};
use crate::words;

/// The first address that is tried as one that nobody has registered: a locally administered one.
const UNKNOWN_MAC: u64 = 0x0600_0000_0001;

/// Addresses that no bridge forwards (IEEE 802.1Q-2018, table 8-1).
fn reserved() -> Cube {
    Cube::any().masked(field(Field::EthDst), 0x0180_c200_0000_u64, 0xffff_ffff_fff0_u64)
}

impl Checker<'_> {
    /// Returns the fault of the tags with which frames leave, in words.
    fn tags_fault(from: &End, to: &End, kind: ServiceKind, frames: &Frames) -> Option<String> {
        let (consumed, added) = (from.tags.count(), to.tags.count());
        let own = usize::from(added);
        let rest = frames.tags.len().checked_sub(own)?;
        let below = frames.tags[..rest].iter().rev();
        let is_kept = |(at, tag): (u8, &Tag)| *tag == Tag::original(at);
        let originals = (consumed..).zip(below);
        if originals.clone().count() != usize::from(frames.seen.saturating_sub(consumed))
            || !originals.into_iter().all(is_kept)
        {
            return Some("the tags below those of the end are not those of the frame".to_owned());
        }
        if kind == ServiceKind::ExchangeLan && (rest > 0 || frames.more) {
            return Some("they have a tag more than the end".to_owned());
        }
        let outer = frames.tags.last().filter(|_| added > 0)?;
        let is_copy = matches!(kind, ServiceKind::P2mpVc | ServiceKind::Mp2mpVc);
        let wanted = consumed.checked_sub(1).map(Var::Pcp);
        let is_right = match (outer.pcp, outer.origin, wanted) {
            (Some(0), _, _) if is_copy => true,
            (Some(pcp), _, Some(var)) => frames.space.cube.exact(var) == Some(pcp.into()),
            (Some(pcp), _, None) => pcp == 0,
            (None, Some(at), Some(var)) => var == Var::Pcp(at),
            (None, ..) => false,
        };
        (!is_right).then(|| "their priority is not that of the frame".to_owned())
    }

    /// Checks the frames of an end.
    pub(crate) fn check_end(&mut self, id: ServiceId, circuit: &Circuit, from_id: ConfigId, from: &End) {
        let Some(port) = from.ports.first().copied() else {
            return;
        };
        let is_open = circuit.is_active && from.is_active;
        let admitted = match circuit.kind {
            ServiceKind::P2pVc => vec![Space::default()],
            ServiceKind::ExchangeLan => admitted(from, &circuit.ethertypes),
            ServiceKind::P2mpVc | ServiceKind::Mp2mpVc => {
                let macs = from.macs.iter();
                macs.map(|mac| Space::of(Cube::any().with(field(Field::EthSrc), mac.to_u64())))
                    .collect()
            }
        };
        let others: Vec<(ConfigId, &End)> = circuit
            .ends
            .iter()
            .filter(|other| **other != from_id)
            .filter_map(|other| Some((*other, self.register.ends.get(other)?)))
            .filter(|(_, other)| other.is_active && (!from.is_leaf || !other.is_leaf))
            .collect();
        let scene = Scene {
            id,
            circuit,
            from_id,
            from,
            is_open,
            admitted,
            others,
        };
        // All ports of a LAG have the same entries; each is followed.
        for port in from
            .ports
            .iter()
            .filter(|other| **other != port)
            .copied()
            .chain([port])
        {
            let ways = self.ways(from.switch, port, Self::frames_of(from));
            self.check(&scene, &ways);
        }
    }

    fn check(&mut self, scene: &Scene<'_>, ways: &[Way]) {
        let mut delivered: Vec<(&Way, ConfigId)> = Vec::new();
        for way in ways {
            match way.outcome {
                Outcome::Delivered { switch, port } => {
                    let Some(left) = self.left(switch, port, &way.frames.tags) else {
                        self.violation(scene, Property::Isolation, way, &way.frames.space, "");
                        continue;
                    };
                    if let Some(filter) = way.filter {
                        self.check_filter(scene, way, filter, &left);
                    }
                    if way.is_real {
                        self.check_delivery(scene, way, &left);
                        delivered.push((way, left.id));
                    }
                }
                Outcome::Loop { .. } => self.violation(scene, Property::NoReturn, way, &way.frames.space, ""),
                Outcome::Unknown { .. } => {
                    self.violation(scene, Property::Delivery, way, &way.frames.space, "");
                }
                Outcome::Dropped { why, .. } if way.is_real => self.check_drop(scene, way, why),
                Outcome::Controller { .. } if way.is_real && scene.is_open => {
                    // A connection whose other end is in quarantine has an entry for reserved addresses.
                    let mut space = way.frames.space.clone();
                    space.exclude(reserved());
                    self.violation(scene, Property::Delivery, way, &space, "");
                }
                Outcome::Dropped { .. } | Outcome::Controller { .. } | Outcome::Unreported { .. } => {}
            }
        }
        let is_unknown = |way: &Way| matches!(way.outcome, Outcome::Unreported { .. });
        if ways.iter().any(is_unknown) {
            return;
        }
        self.check_copies(scene, &delivered);
    }

    fn violation(&mut self, scene: &Scene<'_>, property: Property, way: &Way, space: &Space, why: &str) {
        let Some(example) = space.example() else {
            return;
        };
        let example = example.without_fields(|var| matches!(var, Var::Vid(_)));
        let colon = if why.is_empty() { "" } else { ": " };
        let text = format!(
            "{} from {} of \"{}\" {}{colon}{why}",
            words::packets(&example),
            scene.from.name,
            scene.circuit.name,
            self.outcome(way)
        );
        self.found(property, Some(scene.id), text);
    }

    fn check_delivery(&mut self, scene: &Scene<'_>, way: &Way, left: &Left<'_>) {
        let space = &way.frames.space;
        if !scene.is_open {
            return self.violation(
                scene,
                Property::Isolation,
                way,
                space,
                "the end is not in service",
            );
        }
        if left.end.service != scene.id || !scene.reaches(left.id) && left.id != scene.from_id {
            return self.violation(scene, Property::Isolation, way, space, "");
        }
        if left.id == scene.from_id {
            return self.violation(scene, Property::NoReturn, way, space, "");
        }
        let kind = scene.circuit.kind;
        if let Some(fault) = Self::tags_fault(scene.from, left.end, kind, &way.frames) {
            return self.violation(scene, Property::Delivery, way, space, &fault);
        }
        if let Some((changed, _)) = way
            .frames
            .set
            .iter()
            .find(|(changed, _)| *changed != Field::EthDst || kind != ServiceKind::ExchangeLan)
        {
            let why = format!("their {changed} is changed");
            return self.violation(scene, Property::Delivery, way, space, &why);
        }
        for wrong in self.not_for(scene, way, left) {
            self.violation(
                scene,
                Property::Isolation,
                way,
                &wrong,
                "they are not for this end",
            );
        }
        if let Some(to_bridges) = space.within(&reserved()) {
            let why = "bridges do not forward such addresses";
            self.violation(scene, Property::Isolation, way, &to_bridges, why);
        }
    }

    /// Returns the frames of a way that must not leave at an end.
    fn not_for(&self, scene: &Scene<'_>, way: &Way, left: &Left<'_>) -> Vec<Space> {
        let space = &way.frames.space;
        match scene.circuit.kind {
            ServiceKind::P2pVc => Vec::new(),
            ServiceKind::ExchangeLan => {
                let written = way.frames.set_to(Field::EthDst);
                let wanted = destinations(left.end);
                let fits = |to: &&Destination| to.written.map(|mac| u128::from(mac.to_u64())) == written;
                let to: Vec<&Destination> = wanted.iter().filter(fits).collect();
                outside_of(space, &scene.admitted, &to)
            }
            ServiceKind::P2mpVc | ServiceKind::Mp2mpVc => {
                let mut wrong = outside_of(space, &scene.admitted, &[]);
                // The addresses of other ends, and those of the sender itself.
                let ends = scene.circuit.ends.iter().filter(|end| **end != left.id);
                let macs = ends
                    .filter_map(|end| self.register.ends.get(end))
                    .flat_map(|end| &end.macs);
                let to_others = macs.map(|mac| Cube::any().with(field(Field::EthDst), mac.to_u64()));
                wrong.extend(to_others.filter_map(|cube| space.within(&cube)));
                wrong
            }
        }
    }

    fn check_drop(&mut self, scene: &Scene<'_>, way: &Way, why: Why) {
        if !scene.is_open || matches!(why, Why::Entry { cookie, .. } if self.is_own_filter(cookie)) {
            return;
        }
        let mut space = way.frames.space.clone();
        space.exclude(reserved());
        match scene.circuit.kind {
            ServiceKind::P2pVc => self.violation(scene, Property::Delivery, way, &space, ""),
            ServiceKind::ExchangeLan => {
                if way.frames.seen > scene.from.tags.count() {
                    // A frame with a tag more than the end is not admitted.
                    return;
                }
                let index = DropIndex::of(&space);
                for (_, other) in &scene.others {
                    for to in destinations(other) {
                        for from in &scene.admitted {
                            if let Some(lost) = index.within(from, &to.cube) {
                                let why = format!("they are for {}", other.name);
                                self.violation(scene, Property::Delivery, way, &lost, &why);
                            }
                        }
                    }
                }
            }
            ServiceKind::P2mpVc | ServiceKind::Mp2mpVc => {
                let index = DropIndex::of(&space);
                for (_, other) in &scene.others {
                    for mac in &other.macs {
                        let to = Cube::any().with(field(Field::EthDst), mac.to_u64());
                        for from in &scene.admitted {
                            if let Some(lost) = index.within(from, &to) {
                                let why = format!("they are for {}", other.name);
                                self.violation(scene, Property::Delivery, way, &lost, &why);
                            }
                        }
                    }
                }
            }
        }
    }

    fn check_filter(&mut self, scene: &Scene<'_>, way: &Way, cookie: u64, left: &Left<'_>) {
        let Some(owner) = filter_of(cookie).and_then(|id| self.register.filters.get(&id)) else {
            return;
        };
        let is_of_peer = owner.peers.is_empty() || owner.peers.contains(&scene.from.account);
        if left.end.account != owner.account || !is_of_peer {
            let why = format!(
                "filter {} concerns them, whose owner does not get them",
                owner.name
            );
            self.violation(scene, Property::Filter, way, &way.frames.space, &why);
        }
    }

    /// Checks that no frame leaves twice, or, in a multipoint circuit, twice at one end; and that copies reach every end.
    fn check_copies(&mut self, scene: &Scene<'_>, delivered: &[(&Way, ConfigId)]) {
        let is_copied = |one: &Way, two: &Way| {
            one.copies.iter().any(|(point, copy)| {
                two.copies
                    .iter()
                    .any(|(other, second)| point == other && copy != second)
            })
        };
        let is_multipoint = matches!(scene.circuit.kind, ServiceKind::P2mpVc | ServiceKind::Mp2mpVc);
        for (at, (one, end)) in delivered.iter().enumerate() {
            for (two, other) in delivered[..at].iter().filter(|(two, _)| is_copied(one, two)) {
                if is_multipoint && end != other {
                    continue;
                }
                let mut both = one.frames.space.within(&two.frames.space.cube);
                if let Some(both) = &mut both {
                    both.without.extend(two.frames.space.without.iter().cloned());
                    let property = if scene.circuit.kind == ServiceKind::ExchangeLan {
                        Property::NoCopy
                    } else {
                        Property::Delivery
                    };
                    self.violation(scene, property, one, both, "they leave more than once");
                }
            }
        }
        if !is_multipoint || !scene.is_open {
            return;
        }
        // Broadcast, and frames to an address that nobody has registered, go to every end.
        let ends = scene
            .circuit
            .ends
            .iter()
            .filter_map(|end| self.register.ends.get(end));
        let known: BTreeSet<u64> = ends.flat_map(|end| &end.macs).map(|mac| mac.to_u64()).collect();
        let unknown = (UNKNOWN_MAC..).find(|address| !known.contains(address));
        let examples = [
            Some((0xffff_ffff_ffff, "broadcast")),
            unknown.map(|mac| (mac, "frames to an unknown address")),
        ];
        for (address, name) in examples.into_iter().flatten() {
            for (id, other) in &scene.others {
                for from in &scene.admitted {
                    let cube = from.cube.clone().with(field(Field::EthDst), address);
                    let arrives = delivered.iter().any(|(way, end)| {
                        end == id
                            && way
                                .frames
                                .space
                                .within(&cube)
                                .is_some_and(|space| !space.is_empty())
                    });
                    if !arrives {
                        let text = format!(
                            "{name} from {} of \"{}\" do not leave at {}",
                            scene.from.name, scene.circuit.name, other.name
                        );
                        self.found(Property::Delivery, Some(scene.id), text);
                    }
                }
            }
        }
    }
}

/// An end whose frames are checked, with its surroundings.
struct Scene<'a> {
    id: ServiceId,
    circuit: &'a Circuit,
    from_id: ConfigId,
    from: &'a End,
    /// True if frames of the end pass.
    is_open: bool,
    /// The frames that the end may send.
    admitted: Vec<Space>,
    /// The ends that it reaches.
    others: Vec<(ConfigId, &'a End)>,
}

impl Scene<'_> {
    fn reaches(&self, end: ConfigId) -> bool {
        self.others.iter().any(|(other, _)| *other == end)
    }
}

/// Returns the frames of a space that are in no pair of an admitted space and a destination; without destinations, in no
/// admitted space.
fn outside_of(space: &Space, admitted: &[Space], to: &[&Destination]) -> Vec<Space> {
    let all = Cube::any();
    let cubes: Vec<&Cube> = if to.is_empty() {
        vec![&all]
    } else {
        to.iter().map(|to| &to.cube).collect()
    };
    // Nearly always, one pair has the whole space.
    for from in admitted.iter().filter(|from| from.cube.covers(&space.cube)) {
        if cubes.iter().any(|cube| cube.covers(&space.cube)) {
            let refused = from.without.iter().filter_map(|cube| space.within(cube));
            let refused: Vec<Space> = refused.filter(|space| !space.is_empty()).collect();
            if refused.is_empty() {
                return Vec::new();
            }
        }
    }
    let mut rest = space.clone();
    let mut refused = Vec::new();
    for from in admitted {
        for cube in &cubes {
            let Some(both) = from.cube.intersection(cube) else {
                continue;
            };
            for without in &from.without {
                if let Some(inside) = both.intersection(without).and_then(|cube| space.within(&cube)) {
                    refused.push((inside, from));
                }
            }
            rest.exclude(both);
        }
    }
    let mut wrong = vec![rest];
    // Frames that one admitted space refuses may be in another one.
    for (mut inside, of) in refused {
        for from in admitted
            .iter()
            .filter(|from| !core::ptr::eq(*from, of) && from.without.is_empty())
        {
            for cube in &cubes {
                if let Some(both) = from.cube.intersection(cube) {
                    inside.exclude(both);
                }
            }
        }
        wrong.push(inside);
    }
    wrong
}

/// Dropped frames, whose excluded cubes are found by the destination address.
struct DropIndex<'a> {
    space: &'a Space,
    by_destination: BTreeMap<u128, Vec<&'a Cube>>,
    others: Vec<&'a Cube>,
}

impl<'a> DropIndex<'a> {
    fn of(space: &'a Space) -> DropIndex<'a> {
        let (mut by_destination, mut others) = (BTreeMap::<u128, Vec<&Cube>>::new(), Vec::new());
        for cube in &space.without {
            match cube.exact(field(Field::EthDst)) {
                Some(value) => by_destination.entry(value).or_default().push(cube),
                None => others.push(cube),
            }
        }
        DropIndex {
            space,
            by_destination,
            others,
        }
    }

    /// Returns the dropped frames that are in a space and in a cube, if there are any.
    fn within(&self, from: &Space, to: &Cube) -> Option<Space> {
        let cube = self.space.cube.intersection(&from.cube)?.intersection(to)?;
        let near: Box<dyn Iterator<Item = &&Cube>> = match cube.exact(field(Field::EthDst)) {
            Some(value) => Box::new(
                self.by_destination
                    .get(&value)
                    .into_iter()
                    .flatten()
                    .chain(&self.others),
            ),
            None => Box::new(self.by_destination.values().flatten().chain(&self.others)),
        };
        let mut found = Space::of(cube);
        for other in near.copied().chain(&from.without) {
            found.exclude(other.clone());
        }
        (!found.is_empty()).then_some(found)
    }
}
