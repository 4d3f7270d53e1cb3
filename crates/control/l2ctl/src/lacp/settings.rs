//! The settings of a LAG and of its members, as LACP needs them.

use millrace_types::Mac;

use super::{Fallback, LagNumber, Mode, Rate};

/// The settings of a LAG.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Settings {
    /// The priority of this system; lower is better.
    pub system_priority: u16,
    /// The address of this system, the same for all of its LAGs.
    pub system: Mac,
    /// The number of the LAG in this system.
    pub number: LagNumber,
    pub mode: Mode,
    /// The rate at which the partner shall send.
    pub rate: Rate,
    /// The number of usable members below which the LAG is down; at least 1.
    pub min_links: usize,
    /// The behaviour while no member hears a partner.
    pub fallback: Fallback,
}
