//! The packets that NORMAL forwards while no controller is connected.

/// The packets that NORMAL forwards in place of the flow entries (fail-standalone; OpenFlow 1.3.5, section 6.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Standalone {
    /// None: the flow entries alone decide.
    #[default]
    Off,
    /// Packets that match no flow entry.
    Misses,
    /// All packets: no flow entry is looked up.
    All,
}
