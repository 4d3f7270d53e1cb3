//! Refusals: the kind that a peer is told, and the reason that it shows to its user.

/// The reason for a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefuseCode {
    /// The ticket is unknown, has expired, or belongs to another sender; the key is not on the list.
    NotAdmitted,
    /// Sender and receiver speak different versions.
    Version,
    /// The manifest is not valid or exceeds a limit.
    Manifest,
    /// The files cannot be written.
    Files,
    /// The files exceed the quota of the grant.
    Quota,
    /// The receiver has reached its maximum number of transfers, or is about to end.
    Busy,
    /// A reason that this version does not know; the text explains it.
    Unknown = 255,
}

impl RefuseCode {
    /// The codes of docs/transport-protocol.md, by number.
    pub(crate) const KNOWN: [RefuseCode; 6] = [
        RefuseCode::NotAdmitted,
        RefuseCode::Version,
        RefuseCode::Manifest,
        RefuseCode::Files,
        RefuseCode::Quota,
        RefuseCode::Busy,
    ];

    /// Returns the name in events.
    pub fn name(self) -> &'static str {
        match self {
            RefuseCode::NotAdmitted => "not_admitted",
            RefuseCode::Version => "version",
            RefuseCode::Manifest => "manifest",
            RefuseCode::Files => "files",
            RefuseCode::Quota => "quota",
            RefuseCode::Busy => "busy",
            RefuseCode::Unknown => "unknown",
        }
    }
}

/// A refusal, with the reason that the peer shows to its user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The kind of refusal.
    pub code: RefuseCode,
    /// The reason, and the next step.
    pub reason: String,
}

impl Refusal {
    /// Returns the refusal for a peer that has no right to its request.
    pub fn not_admitted(reason: impl Into<String>) -> Refusal {
        Refusal {
            code: RefuseCode::NotAdmitted,
            reason: reason.into(),
        }
    }
}
