//! The network functions `ips` (intrusion prevention) and `ids` (intrusion detection): the engine of `millrace-ips-engine` in
//! a chain.
//!
//! ```text
//!  control side                                      |  worker (or process)
//!  rule files ─bundle─▶ Source ─rules─▶ Rules ───────┼─▶ Inspector: burst ─▶ Engine ─▶ verdicts, Effects (resets, shuns)
//!  EVE JSON ◀─formatter── messages ◀─ codec ◀────────┼────────────────────────┴─▶ events
//! ```

#![forbid(unsafe_code)]

mod bundle;
mod codec;
mod counters;
mod formatter;
mod function;
mod load;
mod reject;
mod rules;
mod settings;

use millrace_ips_engine::Mode;
use millrace_nf::{Access, Function, Kind, Spread};

use function::Inspector;

/// The number of messages of the outbox, and the size of a message in bytes. A message has as many events as
/// fit.
const OUTBOX: (usize, usize) = (1024, 8192);
/// Largest size of the report of a function, in bytes.
const REPORT: usize = 1024;
/// Flows that a function shuns at a time.
const SHUNS: usize = 65_536;

/// Intrusion prevention: inspects, drops, rejects and normalises packets.
pub const IPS: Kind = Kind {
    name: "ips",
    about: "intrusion prevention: drops, rejects and normalises packets by rules of Suricata and Snort",
    settings: &settings::ALL,
    counters: &counters::NAMES,
    reads: Access::ALL,
    writes: Access::ALL,
    keeps_flows: true,
    shuns: SHUNS,
    outbox: OUTBOX,
    report: REPORT,
    spread: Spread::Addresses,
    shared: Some(&rules::SHARED),
    formatter: Some(formatter::make),
    make: &|setup| Inspector::new(setup, Mode::Ips).map(|inspector| Box::new(inspector) as Box<dyn Function>),
};

/// Intrusion detection: inspects packets, and changes and drops none.
pub const IDS: Kind = Kind {
    name: "ids",
    about: "intrusion detection: raises alerts by rules of Suricata and Snort, and changes nothing",
    writes: Access::NONE,
    make: &|setup| Inspector::new(setup, Mode::Ids).map(|inspector| Box::new(inspector) as Box<dyn Function>),
    ..IPS
};
