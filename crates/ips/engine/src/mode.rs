//! The modes of the engine.

/// The deployment of the engine: passive or inline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Passive: the engine gets copies of packets, and inspects data once the receiver has acknowledged them.
    #[default]
    Ids,
    /// Inline: data are inspected at once, and packets that a rule drops are not forwarded.
    Ips,
}
