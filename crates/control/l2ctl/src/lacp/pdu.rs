//! The LACPDU, version 1 (IEEE 802.1AX-2014, section 6.4.2), and the marker PDU (section 6.5.3).

use core::ops::{BitAnd, BitOr};

use millrace_types::Mac;

/// Size of a PDU of a slow protocol after the EtherType, in bytes.
pub const LACPDU_SIZE: usize = 110;
const SUBTYPE_LACP: u8 = 1;
const SUBTYPE_MARKER: u8 = 2;
const VERSION: u8 = 1;

/// The type and the length of each information field.
const ACTOR: [u8; 2] = [1, 20];
const PARTNER: [u8; 2] = [2, 20];
const COLLECTOR: [u8; 2] = [3, 16];
const MARKER: [u8; 2] = [1, 16];
const MARKER_RESPONSE: [u8; 2] = [2, 16];

const ACTOR_AT: usize = 2;
const PARTNER_AT: usize = 22;
const COLLECTOR_AT: usize = 42;

/// The state of an actor or of a partner, one bit each (IEEE 802.1AX-2014, figure 6-8).
///
/// ```text
///    7         6           5              4           3      2            1        0
/// expired  defaulted  distributing  collecting  in sync  aggregatable  short    active
///                                                                      timeout
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct State(pub u8);

impl State {
    /// The side sends LACPDUs without being asked.
    pub const ACTIVITY: State = State(0x01);
    /// The side wants LACPDUs each second.
    pub const TIMEOUT: State = State(0x02);
    /// The link may be aggregated with others.
    pub const AGGREGATION: State = State(0x04);
    /// The link is attached to the right aggregator.
    pub const SYNCHRONIZATION: State = State(0x08);
    /// The side receives frames on this link.
    pub const COLLECTING: State = State(0x10);
    /// The side sends frames on this link.
    pub const DISTRIBUTING: State = State(0x20);
    /// The side knows no partner.
    pub const DEFAULTED: State = State(0x40);
    /// The side has not heard its partner for the timeout.
    pub const EXPIRED: State = State(0x80);

    /// The names of the bits, from the lowest.
    const NAMES: [&'static str; 8] = [
        "activity",
        "timeout",
        "aggregation",
        "synchronization",
        "collecting",
        "distributing",
        "defaulted",
        "expired",
    ];

    /// Returns true if all bits of `other` are set.
    pub const fn contains(self, other: State) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns this state with the bits of `bits` set or cleared.
    #[must_use]
    pub const fn with(self, bits: State, is_set: bool) -> State {
        State(if is_set { self.0 | bits.0 } else { self.0 & !bits.0 })
    }

    /// Returns the names of the set bits, from the lowest.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        (0..8)
            .filter(move |bit| self.0 >> bit & 1 != 0)
            .map(|bit| Self::NAMES[bit])
    }
}

impl BitOr for State {
    type Output = State;

    fn bitor(self, other: State) -> State {
        State(self.0 | other.0)
    }
}

impl BitAnd for State {
    type Output = State;

    fn bitand(self, other: State) -> State {
        State(self.0 & other.0)
    }
}

impl core::fmt::Debug for State {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// One side of a link: the actor or the partner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Participant {
    /// The priority of the system; lower is better.
    pub system_priority: u16,
    /// The address of the system; zero if it is unknown.
    pub system: Mac,
    /// The operational key: ports of a system with the same key may be aggregated.
    pub key: u16,
    /// The priority of the port; lower is better.
    pub port_priority: u16,
    /// The number of the port in its system, from 1.
    pub port: u16,
    pub state: State,
}

impl Participant {
    fn parse(bytes: &[u8; 20]) -> Participant {
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        Participant {
            system_priority: word(2),
            system: Mac([bytes[4], bytes[5], bytes[6], bytes[7], bytes[8], bytes[9]]),
            key: word(10),
            port_priority: word(12),
            port: word(14),
            state: State(bytes[16]),
        }
    }

    fn emit(&self, kind: [u8; 2], out: &mut [u8]) {
        out[..2].copy_from_slice(&kind);
        out[2..4].copy_from_slice(&self.system_priority.to_be_bytes());
        out[4..10].copy_from_slice(&self.system.0);
        out[10..12].copy_from_slice(&self.key.to_be_bytes());
        out[12..14].copy_from_slice(&self.port_priority.to_be_bytes());
        out[14..16].copy_from_slice(&self.port.to_be_bytes());
        out[16] = self.state.0;
    }

    /// Returns true if both name the same port of the same system, with the same key and priorities.
    pub(super) fn is_same_port(&self, other: &Participant) -> bool {
        Participant {
            state: State(0),
            ..*self
        } == Participant {
            state: State(0),
            ..*other
        }
    }
}

/// An LACPDU: both sides of a link, as its sender sees them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lacpdu {
    /// The sender.
    pub actor: Participant,
    /// The receiver, as the sender knows it.
    pub partner: Participant,
    /// The longest time for which the sender's collector may delay a frame, in tens of microseconds.
    pub collector_max_delay: u16,
}

impl Lacpdu {
    /// Returns the bytes after the EtherType.
    pub fn emit(&self) -> [u8; LACPDU_SIZE] {
        let mut bytes = [0; LACPDU_SIZE];
        bytes[..2].copy_from_slice(&[SUBTYPE_LACP, VERSION]);
        self.actor.emit(ACTOR, &mut bytes[ACTOR_AT..PARTNER_AT]);
        self.partner.emit(PARTNER, &mut bytes[PARTNER_AT..COLLECTOR_AT]);
        bytes[COLLECTOR_AT..COLLECTOR_AT + 2].copy_from_slice(&COLLECTOR);
        bytes[COLLECTOR_AT + 2..COLLECTOR_AT + 4].copy_from_slice(&self.collector_max_delay.to_be_bytes());
        bytes
    }
}

/// A marker PDU: its sender asks whether the frames that it sent before have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Marker {
    /// The port of the requester.
    pub port: u16,
    /// The system of the requester.
    pub system: Mac,
    /// The number that the requester chose.
    pub transaction: u32,
    /// True if this is the response.
    pub is_response: bool,
}

impl Marker {
    /// Returns the bytes after the EtherType.
    pub fn emit(&self) -> [u8; LACPDU_SIZE] {
        let mut bytes = [0; LACPDU_SIZE];
        bytes[..2].copy_from_slice(&[SUBTYPE_MARKER, VERSION]);
        bytes[2..4].copy_from_slice(if self.is_response {
            &MARKER_RESPONSE
        } else {
            &MARKER
        });
        bytes[4..6].copy_from_slice(&self.port.to_be_bytes());
        bytes[6..12].copy_from_slice(&self.system.0);
        bytes[12..16].copy_from_slice(&self.transaction.to_be_bytes());
        bytes
    }
}

/// A PDU of the slow protocols that a LAG handles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pdu {
    /// An LACPDU.
    Lacp(Lacpdu),
    /// A marker or its response.
    Marker(Marker),
}

impl Pdu {
    /// Reads the bytes after the EtherType. A higher version is read as version 1 (IEEE 802.1AX-2014, section 6.4.2.3).
    /// Returns `None` if the PDU is too short, of another slow protocol, or has other information fields.
    pub fn parse(bytes: &[u8]) -> Option<Pdu> {
        let pdu = bytes.first_chunk::<LACPDU_SIZE>()?;
        let field = |at: usize| [pdu[at], pdu[at + 1]];
        let participant = |at: usize| pdu[at..].first_chunk::<20>().map(Participant::parse);
        match (pdu[0], pdu[1]) {
            (SUBTYPE_LACP, VERSION..) => {
                let is_valid = field(ACTOR_AT) == ACTOR
                    && field(PARTNER_AT) == PARTNER
                    && field(COLLECTOR_AT) == COLLECTOR;
                is_valid.then_some(Pdu::Lacp(Lacpdu {
                    actor: participant(ACTOR_AT)?,
                    partner: participant(PARTNER_AT)?,
                    collector_max_delay: u16::from_be_bytes(field(COLLECTOR_AT + 2)),
                }))
            }
            (SUBTYPE_MARKER, VERSION..) => {
                let is_response = match field(2) {
                    MARKER => false,
                    MARKER_RESPONSE => true,
                    _ => return None,
                };
                Some(Pdu::Marker(Marker {
                    port: u16::from_be_bytes(field(4)),
                    system: Mac([pdu[6], pdu[7], pdu[8], pdu[9], pdu[10], pdu[11]]),
                    transaction: u32::from_be_bytes([pdu[12], pdu[13], pdu[14], pdu[15]]),
                    is_response,
                }))
            }
            _ => None,
        }
    }
}
