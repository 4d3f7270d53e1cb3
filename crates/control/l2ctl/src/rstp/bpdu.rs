//! Bridge protocol data units (IEEE 802.1D-2004, section 9.3).
//!
//! ```text
//!  0         2        3       4       5          13     17          25       27     29    31     33      35
//! ┌─────────┬────────┬───────┬───────┬──────────┬──────┬───────────┬────────┬──────┬─────┬──────┬───────┬──────┐
//! │protocol │version │ type  │ flags │ root     │ cost │ bridge    │ port   │ age  │ max │hello │forward│ 0    │
//! │ 0       │ 0, 2   │0,2,80h│       │          │      │           │        │      │ age │ time │ delay │(RSTP)│
//! └─────────┴────────┴───────┴───────┴──────────┴──────┴───────────┴────────┴──────┴─────┴──────┴───────┴──────┘
//! ```
//! Times are in units of 1/256 s. A topology change notification ends after its type (80h).

use millrace_types::{Duration, Mac};

use super::vector::{BridgeId, PortId};

const TYPE_CONFIG: u8 = 0;
const TYPE_RST: u8 = 2;
const TYPE_TCN: u8 = 0x80;
const VERSION_RSTP: u8 = 2;
const CONFIG_SIZE: usize = 35;
const RST_SIZE: usize = 36;
const TCN_SIZE: usize = 4;

/// The role of a port in the flags of an RST BPDU (IEEE 802.1D-2004, section 9.3.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PortRole {
    /// Not used by senders; receivers treat the BPDU as a configuration BPDU.
    Unknown = 0,
    /// Alternate or backup.
    AlternateOrBackup = 1,
    Root = 2,
    Designated = 3,
}

/// The flags of a BPDU.
///
/// ```text
///       7            6         5           4        3  2       1             0
/// topology change agreement forwarding learning    role    proposal  topology change
/// acknowledgment
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The topology changed.
    pub const TOPOLOGY_CHANGE: Flags = Flags(0x01);
    /// The sender asks for agreement.
    pub const PROPOSAL: Flags = Flags(0x02);
    /// The sender's port is learning.
    pub const LEARNING: Flags = Flags(0x10);
    /// The sender's port is forwarding.
    pub const FORWARDING: Flags = Flags(0x20);
    /// The sender agrees.
    pub const AGREEMENT: Flags = Flags(0x40);
    /// The sender has received a topology change notification.
    pub const TOPOLOGY_CHANGE_ACK: Flags = Flags(0x80);

    /// Returns true if all bits of `other` are set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the flags with the bits of `bits` set if `is_set`.
    #[must_use]
    pub const fn with(self, bits: Flags, is_set: bool) -> Flags {
        Flags(if is_set { self.0 | bits.0 } else { self.0 })
    }

    /// Returns the flags with this role.
    #[must_use]
    pub const fn with_role(self, role: PortRole) -> Flags {
        Flags(self.0 & !0x0c | (role as u8) << 2)
    }

    /// Returns the role.
    pub const fn role(self) -> PortRole {
        match self.0 >> 2 & 3 {
            0 => PortRole::Unknown,
            1 => PortRole::AlternateOrBackup,
            2 => PortRole::Root,
            _ => PortRole::Designated,
        }
    }
}

/// The times of a BPDU, in units of 1/256 s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Times {
    /// The age of the information: about 1 s for each hop from the root.
    pub message_age: u16,
    /// The age at which information expires.
    pub max_age: u16,
    /// The time between two BPDUs.
    pub hello_time: u16,
    /// The time that a port stays discarding, and learning, without agreement.
    pub forward_delay: u16,
}

impl Times {
    /// Returns the duration of a time in units of 1/256 s.
    pub(super) const fn duration(units: u16) -> Duration {
        Duration::from_nanos(units as u64 * (1_000_000_000 / 256))
    }
}

/// The fields that configuration BPDUs and RST BPDUs share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fields {
    /// The flags. In a configuration BPDU, only the topology change and its acknowledgment.
    pub flags: Flags,
    /// The root bridge.
    pub root: BridgeId,
    /// The cost of the sender's path to the root.
    pub root_path_cost: u32,
    /// The sender.
    pub bridge: BridgeId,
    /// The port of the sender.
    pub port: PortId,
    pub times: Times,
}

/// A bridge protocol data unit of STP or of RSTP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Bpdu {
    /// A configuration BPDU of STP.
    Config(Fields),
    /// A topology change notification of STP.
    TopologyChange,
    /// An RST BPDU.
    Rst(Fields),
}

impl Bpdu {
    /// Reads a BPDU, which begins after the LLC header. Returns `None` if it is not valid (IEEE 802.1D-2004, section
    /// 9.3.4). RST BPDUs of a higher version, such as those of MSTP, are read as RSTP.
    pub fn parse(bytes: &[u8]) -> Option<Bpdu> {
        let head = bytes.first_chunk::<TCN_SIZE>()?;
        match *head {
            [0, 0, _, TYPE_TCN] => Some(Bpdu::TopologyChange),
            [0, 0, _, TYPE_CONFIG] => {
                let mut fields = Fields::parse(bytes.first_chunk()?);
                // A configuration BPDU that is too old is discarded; so is one with times that no bridge sends.
                let is_valid = fields.times.message_age < fields.times.max_age;
                fields.flags.0 &= Flags::TOPOLOGY_CHANGE.0 | Flags::TOPOLOGY_CHANGE_ACK.0;
                is_valid.then_some(Bpdu::Config(fields))
            }
            [0, 0, (VERSION_RSTP..), TYPE_RST] => {
                bytes.get(..RST_SIZE)?;
                Some(Bpdu::Rst(Fields::parse(bytes.first_chunk()?)))
            }
            _ => None,
        }
    }

    /// Returns the bytes after the LLC header.
    pub fn emit(&self) -> Vec<u8> {
        match self {
            Bpdu::TopologyChange => vec![0, 0, 0, TYPE_TCN],
            Bpdu::Config(fields) => fields.emit(0, TYPE_CONFIG),
            Bpdu::Rst(fields) => {
                let mut bytes = fields.emit(VERSION_RSTP, TYPE_RST);
                // Version 1 length.
                bytes.push(0);
                bytes
            }
        }
    }
}

impl Fields {
    fn parse(bytes: &[u8; CONFIG_SIZE]) -> Fields {
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let bridge = |at: usize| BridgeId {
            priority: word(at),
            address: Mac([
                bytes[at + 2],
                bytes[at + 3],
                bytes[at + 4],
                bytes[at + 5],
                bytes[at + 6],
                bytes[at + 7],
            ]),
        };
        Fields {
            flags: Flags(bytes[4]),
            root: bridge(5),
            root_path_cost: u32::from_be_bytes([bytes[13], bytes[14], bytes[15], bytes[16]]),
            bridge: bridge(17),
            port: PortId(word(25)),
            times: Times {
                message_age: word(27),
                max_age: word(29),
                hello_time: word(31),
                forward_delay: word(33),
            },
        }
    }

    fn emit(&self, version: u8, kind: u8) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(RST_SIZE);
        bytes.extend([0, 0, version, kind, self.flags.0]);
        let bridge = |bytes: &mut Vec<u8>, id: BridgeId| {
            bytes.extend(id.priority.to_be_bytes());
            bytes.extend(id.address.0);
        };
        bridge(&mut bytes, self.root);
        bytes.extend(self.root_path_cost.to_be_bytes());
        bridge(&mut bytes, self.bridge);
        bytes.extend(self.port.0.to_be_bytes());
        let times = self.times;
        for time in [
            times.message_age,
            times.max_age,
            times.hello_time,
            times.forward_delay,
        ] {
            bytes.extend(time.to_be_bytes());
        }
        bytes
    }
}
