//! The effect of a change: which frames go elsewhere than before, in words.

use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_model::{ConfigId, ServiceId};

use crate::check::Checker;
use crate::reader::{Reader, Told};
use crate::register::Register;
use crate::space::{Cube, Space, Var};
use crate::trace::{Fabric, Outcome, SwitchNumber, Way};
use crate::words;

/// A set of frames that a change treats otherwise than before.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Effect {
    /// The end from which the frames come.
    pub from: ConfigId,
    /// The switch and the port at which the frames enter.
    pub port: (SwitchNumber, u32),
    /// The frames, as they enter.
    pub frames: Cube,
    /// The effect in one sentence.
    pub text: String,
}

/// The most effects of one change. A change of a large LAN has one for each pair of its ends and kind of frame.
const EFFECTS_MAX: usize = 10_000;

/// The frames of some ends, with the ways that they take at one moment.
#[derive(Debug)]
pub struct Followed(BTreeMap<ConfigId, FollowedEnd>);

#[derive(Debug)]
struct FollowedEnd {
    service: ServiceId,
    port: (SwitchNumber, u32),
    /// The end and its service in words.
    name: String,
    /// Each way with its outcome in words.
    ways: Vec<(Way, Told)>,
}

/// Returns the ways of the frames of some ends, in the words of a reader. An end that the register does not have is looked up in
/// the other register: that of the exchange after or before a change.
pub fn follow(
    fabric: &Fabric,
    (register, other): (&Register, &Register),
    ends: &BTreeSet<ConfigId>,
    reader: &Reader<'_>,
) -> Followed {
    let mut followed = BTreeMap::new();
    for id in ends {
        let Some(end) = register.ends.get(id).or_else(|| other.ends.get(id)) else {
            continue;
        };
        let Some(port) = end.ports.first().copied() else {
            continue;
        };
        let mut checker = Checker::new(fabric, register);
        let ways = checker.ways(end.switch, port, Checker::frames_of(end));
        let real = ways.into_iter().filter(|way| way.is_real);
        let circuits = [register, other].map(|register| register.services.get(&end.service));
        let circuit = circuits.into_iter().flatten().next();
        let entry = FollowedEnd {
            service: end.service,
            port: (end.switch, port),
            name: reader.end(*id, &end.name, circuit.map_or("", |circuit| &circuit.name)),
            ways: real
                .map(|way| {
                    let told = reader.outcome(&checker, &way);
                    (way, told)
                })
                .collect(),
        };
        followed.insert(*id, entry);
    }
    Followed(followed)
}

/// Returns the frames that take other ways after a change than before, both followed from the same ends for the same reader.
pub fn effects(before: &Followed, after: &Followed, reader: &Reader<'_>) -> Vec<Effect> {
    let mut found = BTreeMap::new();
    let elsewhere = Told {
        words: "do not leave there".to_owned(),
        is_receiver: false,
    };
    for (id, was) in &before.0 {
        let Some(is) = after.0.get(id).filter(|is| is.service == was.service) else {
            continue;
        };
        let (lost, gained) = (left_over(&was.ways, &is.ways), left_over(&is.ways, &was.ways));
        let (sends, owns) = (reader.owns_end(*id), reader.owns_service(was.service));
        let mut tell = |space: &Space, then: &Told, now: &Told| {
            let receives = then.is_receiver || now.is_receiver;
            let is_concerned = sends || receives || owns;
            if then.words == now.words || !is_concerned || found.len() >= EFFECTS_MAX {
                return;
            }
            // Ends with two tags have an entry for each priority; the frames of all have one way.
            let cube = space.cube.without_fields(|var| matches!(var, Var::Pcp(_)));
            let shown = cube.without_fields(|var| matches!(var, Var::Vid(_)));
            let text = format!(
                "{} from {}: before, they {}; after, they {}",
                words::packets(&reader.headers(&shown, sends, receives)),
                was.name,
                then.words,
                now.words,
            );
            let effect = Effect {
                from: *id,
                port: was.port,
                frames: cube,
                text: text.clone(),
            };
            found.entry(text).or_insert(effect);
        };
        for (space, then) in &lost {
            let met = common(space, gained.iter().chain(&nowhere(&is.ways)));
            for (both, now) in &met {
                tell(both, then, now);
            }
            if met.is_empty() {
                tell(space, then, &elsewhere);
            }
        }
        for (space, now) in &gained {
            let met = common(space, lost.iter().chain(&nowhere(&was.ways)));
            for (both, then) in &met {
                tell(both, then, now);
            }
            if met.is_empty() {
                tell(space, &elsewhere, now);
            }
        }
    }
    found.into_values().collect()
}

const fn leaves(way: &Way) -> bool {
    matches!(way.outcome, Outcome::Delivered { .. })
}

/// Returns the frames of ways that leave nowhere.
fn nowhere(ways: &[(Way, Told)]) -> Vec<(Space, Told)> {
    let ways = ways.iter().filter(|(way, _)| !leaves(way));
    ways.map(|(way, words)| (way.frames.space.clone(), words.clone()))
        .collect()
}

/// Returns the packets that a space has in common with others, each with its words.
fn common<'a>(space: &Space, others: impl Iterator<Item = &'a (Space, Told)>) -> Vec<(Space, Told)> {
    others
        .filter_map(|(other, words)| {
            let mut both = space.within(&other.cube)?;
            both.without.extend(other.without.iter().cloned());
            (!both.is_empty()).then(|| (both, words.clone()))
        })
        .collect()
}

/// Returns the frames of ways that leave, and that do not leave so by the other ways.
fn left_over(ways: &[(Way, Told)], others: &[(Way, Told)]) -> Vec<(Space, Told)> {
    let mut all = Vec::new();
    for (way, words) in ways.iter().filter(|(way, _)| leaves(way)) {
        let mut rest = vec![way.frames.space.clone()];
        for (other, _) in others.iter().filter(|(other, _)| same(way, other)) {
            rest = rest
                .iter()
                .flat_map(|part| part.minus(&other.frames.space))
                .collect();
            rest.retain(|part| !part.is_empty());
            if rest.is_empty() {
                break;
            }
        }
        all.extend(rest.into_iter().map(|part| (part, words.clone())));
    }
    all
}

/// Returns true if frames leave at the same place with the same headers.
fn same(one: &Way, two: &Way) -> bool {
    one.outcome == two.outcome && one.frames.tags == two.frames.tags && one.frames.set == two.frames.set
}
