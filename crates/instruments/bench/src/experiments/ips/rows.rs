//! The rows of the experiment with their gates (docs/gates.md, "Intrusion prevention"). Values and missing values are
//! recorded under these rows.

use crate::gated::Gate;
use crate::gated::recorder::{Case, case};

/// The sizes of frames of the published experiment, with check sequence.
pub(super) const FRAMES: [u16; 7] = [64, 128, 256, 512, 1024, 1280, 1518];
/// The systems with rules.
pub(super) const ONE: &str = "one rule";
pub(super) const MANY: &str = "14,000 rules";
/// Rates of 64-byte frames at 2 x 10 Gbit/s that gate I7 asks for, in Mpps.
const GATES: [(&str, f64); 2] = [(ONE, 8.0), (MANY, 4.0)];
/// Sizes of HTTP objects in KiB.
pub(super) const OBJECTS: [u16; 6] = [1, 2, 4, 16, 64, 256];
/// HTTP connections a second with objects of 1 KiB that gate I8 asks for.
const CONNECTIONS: f64 = 100_000.0;
/// The size of frames under load, with check sequence.
pub(super) const FRAME: u16 = 512;
/// Latencies in microseconds that gate I9 asks for: median and 99.9th percentile.
const LATENCY: [f64; 2] = [10.0, 200.0];
/// The profiles that are measured at twice the load.
pub(super) const PROFILES: [&str; 2] = ["closed", "open"];
/// Gate I10, at twice the load: the share of its highest rate that a function must still carry, in percent.
const OVERLOADED: f64 = 95.0;
/// Gate I11, a reload of all rules, in seconds.
const RELOAD: f64 = 30.0;
/// The share of the highest rate that is offered during a reload, 0 to 1.
pub(super) const RELOAD_LOAD: f64 = 0.4;
/// Numbers of lanes, and the ratios to the rate of one lane that gate I12 asks for.
pub(super) const LANES: [(usize, f64); 2] = [(2, 1.8), (4, 3.4)];
/// Connections that are open at a time.
pub(super) const OPEN: u32 = 32_768;
/// The share of its highest rate that a function carries below its limit, and beyond it.
pub(super) const BELOW: f64 = 0.95;
pub(super) const TWICE: f64 = 2.0;
/// The loads in the order of measurement: none, [`BELOW`], [`TWICE`].
pub(super) const LOADS: [&str; 3] = ["alone", "beside 95 % of its rate", "beside twice its rate"];
/// The mixes of `millrace ips rate`, in its order.
const MIXES: [&str; 4] = ["web", "http", "dns", "mail"];
/// The ratio to the rate of Suricata that gate I5 asks for.
const RATIO: f64 = 1.5;

/// How many times as fast as the earlier build public captures must be read: gate I16.
const FASTER: f64 = 1.65;

/// Returns the rows of a function and a size of frames: its share of two links, its rate, and its ratio to `monitor`.
pub(super) fn frame_rows(system: &str, frame: u16) -> [Case; 3] {
    let gate = GATES.iter().find(|(name, _)| frame == 64 && *name == system);
    [
        ("share of 2 x 1G", Gate::AtLeast(100.0), "%"),
        (
            "one core",
            gate.map_or(Gate::None, |(_, mpps)| Gate::AtLeast(*mpps)),
            "Mpps",
        ),
        ("ratio to monitor", Gate::None, ""),
    ]
    .map(|(what, gate, unit)| {
        let name = format!("E7 {system}: {frame} B, {what}");
        case(name, format!("{frame} B"), gate, unit)
    })
}

/// Returns all rows of a function except the rows by frame size and the rows of attacks.
pub(super) fn load_rows(system: &str) -> Vec<Case> {
    let http = OBJECTS.into_iter().flat_map(|kib| http_rows(system, kib));
    let twice = PROFILES
        .into_iter()
        .flat_map(|profile| twice_rows(system, profile));
    http.chain(half_rows(system))
        .chain(twice)
        .chain(open_rows(system))
        .chain(lane_rows(system))
        .collect()
}

pub(super) fn http_rows(system: &str, kib: u16) -> [Case; 2] {
    let asked = format!("{kib} KiB");
    let name = format!("RFC 9411 {system}: {asked}");
    let gate = match kib {
        1 => Gate::AtLeast(CONNECTIONS),
        _ => Gate::None,
    };
    [
        case(format!("{name}, connections"), &asked, gate, "a second"),
        case(format!("{name}, bodies"), &asked, Gate::None, "Gbit/s"),
    ]
}

fn load_row(system: &str, what: &str, gate: Gate, unit: &'static str) -> Case {
    case(
        format!("load, {system}: {what}"),
        format!("{FRAME} B"),
        gate,
        unit,
    )
}

pub(super) fn half_rows(system: &str) -> [Case; 2] {
    let row = |what, gate| load_row(system, what, Gate::AtMost(gate), "us");
    [row("half, p50", LATENCY[0]), row("half, p99.9", LATENCY[1])]
}

/// Returns the rows of a function at twice its highest rate with a profile: the share of that rate that it
/// carries, and the packets that it did not inspect.
pub(super) fn twice_rows(system: &str, profile: &str) -> Vec<Case> {
    let row = |what: &str, gate, unit| load_row(system, &format!("twice, {profile}, {what}"), gate, unit);
    let carried = row("carried", Gate::AtLeast(OVERLOADED), "% of its rate");
    match profile {
        "closed" => vec![carried, row("not inspected", Gate::Exactly(0.0), "packets")],
        _ => vec![
            carried,
            row("neither inspected nor counted", Gate::Exactly(0.0), "packets"),
            row("not inspected", Gate::None, "packets"),
        ],
    }
}

/// Returns the rows of a reload; `loaded` describes the rules.
pub(super) fn reload_rows(loaded: &str) -> [Case; 5] {
    let asked = format!("{FRAME} B, {:.0} % load, {loaded}", RELOAD_LOAD * 100.0);
    let asked = asked.trim_end_matches(", ");
    let row = |what: &str, gate, unit| case(format!("reload of all rules: {what}"), asked, gate, unit);
    [
        row("packets lost", Gate::Exactly(0.0), ""),
        row("time", Gate::AtMost(RELOAD), "s"),
        row("p99.9 over before", Gate::AtMost(2.0), ""),
        row("p99.9", Gate::None, "us"),
        row("exchange", Gate::None, "us"),
    ]
}

pub(super) fn open_rows(system: &str) -> [Case; 2] {
    let row = |what: &str, gate, unit| {
        let name = format!("RFC 9411 7.5, {system}: {what}");
        case(name, format!("{OPEN} open at a time"), gate, unit)
    };
    [
        row("followed", Gate::AtLeast(100.0), "%"),
        row("one core", Gate::None, "Mpps"),
    ]
}

pub(super) fn lane_rows(system: &str) -> [Case; 2] {
    LANES.map(|(count, gate)| {
        let name = format!("lanes, {system}: {count} over one");
        case(name, format!("{FRAME} B"), Gate::AtLeast(gate), "times")
    })
}

/// Returns the rows of the attacks on a function.
pub(super) fn attack_rows(system: &str) -> impl Iterator<Item = Case> {
    LOADS
        .into_iter()
        .flat_map(move |load| attacks_under(system, load))
}

/// Returns the rows of a load: attacks that passed, and attacks that were inspected.
pub(super) fn attacks_under(system: &str, load: &str) -> [Case; 2] {
    [("passed", Gate::Exactly(0.0)), ("inspected", Gate::None)].map(|(what, gate)| {
        let name = format!("attacks, {system}: {load}, {what}");
        case(name, "16 attacks, HTTP 1 KiB", gate, "")
    })
}

/// Returns the rows of the engine.
pub(super) fn engine_rows() -> impl Iterator<Item = Case> {
    MIXES.into_iter().flat_map(|mix| mix_rows(mix, ""))
}

/// Returns the rows of a mix: the rate of the engine, that of Suricata, and their ratio.
pub(super) fn mix_rows(mix: &str, asked: &str) -> [Case; 3] {
    [
        ("one core", Gate::None, "Mbit/s"),
        ("suricata, one core", Gate::None, "Mbit/s"),
        ("ratio to suricata", Gate::AtLeast(RATIO), ""),
    ]
    .map(|(what, gate, unit)| case(format!("engine, {mix}: {what}"), asked, gate, unit))
}

/// Returns the rows of public captures: user time, rate by user time, and alerts.
pub(super) fn capture_rows(asked: &str) -> [Case; 3] {
    [
        ("user time", "s"),
        ("rate by user time", "Mbit/s"),
        ("alerts", ""),
    ]
    .map(|(what, unit)| case(format!("captures, {MANY}: {what}"), asked, Gate::None, unit))
}

/// Returns the row of the user time of the earlier build over that of this one.
pub(super) fn faster_row(asked: &str) -> Case {
    case(
        format!("captures, {MANY}: times as fast as the earlier build"),
        asked,
        Gate::AtLeast(FASTER),
        "times",
    )
}

/// Returns the rows of the rounds that are rates: those of this build are compared with those of the earlier one.
pub(super) fn rates() -> impl Iterator<Item = Case> {
    [ONE, MANY].into_iter().flat_map(|system| {
        let frames = FRAMES.into_iter().map(move |frame| frame_rows(system, frame));
        let http = OBJECTS.into_iter().map(move |kib| http_rows(system, kib));
        let of_frames = frames.map(|[_, one_core, _]| one_core);
        let of_http = http.map(|[connections, _]| connections);
        let [_, of_open] = open_rows(system);
        of_frames.chain(of_http).chain([of_open])
    })
}

/// Returns the rows of the engine that are rates of this project.
pub(super) fn engine_rates(asked: &str) -> impl Iterator<Item = Case> {
    MIXES.into_iter().map(move |mix| {
        let [ours, ..] = mix_rows(mix, asked);
        ours
    })
}
