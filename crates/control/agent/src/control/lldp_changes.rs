//! The neighbours by LLDP that the observer knows.

use std::collections::BTreeMap;

use millrace_l2ctl::lldp::Lldpdu;
use millrace_types::{Mac, PortNo};

/// The neighbours that were reported last.
#[derive(Default)]
pub(super) struct LldpChanges {
    /// The number of changes that the LLDP agent had counted.
    pub(super) counted: u64,
    /// The neighbours of each port.
    pub(super) seen: BTreeMap<PortNo, Vec<(Mac, Lldpdu)>>,
}
