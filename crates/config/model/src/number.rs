//! Numbers of the configuration: each a type of its own whose values are always in range.

use millrace_types::{PortNo, Vid};
use thiserror::Error;

use crate::decode::{Decoder, Detail, Field, decode_integer};
use crate::node::{Node, Value};
use crate::schema::Shape;

/// A number outside the range of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{found} is out of range: expected {min} to {max}{unit}")]
pub struct RangeError {
    /// The number that was offered.
    pub found: u64,
    /// The least legal value.
    pub min: u64,
    /// The greatest legal value.
    pub max: u64,
    /// The unit with a leading blank, or nothing.
    pub unit: &'static str,
}

macro_rules! bounded {
    ($( $(#[doc = $doc:literal])+ $Name:ident($int:ident) in $min:literal ..= $max:literal, $unit:literal; )*) => {$(
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $Name($int);

        impl $Name {
            /// The least value.
            pub const MIN: $Name = $Name($min);
            /// The greatest value.
            pub const MAX: $Name = $Name($max);

            /// # Errors
            /// [`RangeError`] if `raw` is out of range.
            pub const fn new(raw: $int) -> Result<$Name, RangeError> {
                #[allow(unused_comparisons, clippy::absurd_extreme_comparisons, reason = "some ranges begin at zero")]
                if raw < $min || raw > $max {
                    Err(RangeError { found: raw as u64, min: $min, max: $max, unit: $unit })
                } else {
                    Ok($Name(raw))
                }
            }

            /// The value as an integer.
            pub const fn get(self) -> $int {
                self.0
            }
        }

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&self.0, f)
            }
        }

        impl Field for $Name {
            fn shape() -> Shape {
                Shape::Integer { min: $min, max: $max, unit: $unit }
            }

            fn decode(decoder: &mut Decoder, node: &Node) -> Option<$Name> {
                let value = decode_integer(decoder, node, &Self::shape())?;
                $int::try_from(value).ok().map($Name)
            }

            fn encode(&self, _: Detail) -> Option<Node> {
                Some(Value::Integer(self.0.into()).into())
            }
        }
    )*};
}

bounded! {
    /// How many worker threads forward packets.
    WorkerCount(u16) in 1..=128, "";
    /// A CPU core as the operating system numbers it.
    CoreId(u16) in 0..=1023, "";
    /// Memory for packets, in MiB.
    MemoryMib(u32) in 64..=1_048_576, " MiB";
    /// How many flow tables a bridge has.
    TableCount(u8) in 1..=255, "";
    /// The number of a flow table.
    TableNumber(u8) in 0..=254, "";
    /// How many flow entries a table holds.
    TableSize(u32) in 1..=4_000_000, " entries";
    /// How long a learnt MAC address lives without being seen, in seconds (the range of IEEE 802.1Q-2018,
    /// table 8-6).
    MacAgeing(u32) in 10..=1_000_000, " seconds";
    /// How many MAC addresses a bridge can learn.
    MacTableSize(u32) in 16..=1_048_576, " addresses";
    /// Packet-in messages a second; zero is no limit.
    PacketInRate(u32) in 0..=100_000_000, " a second";
    /// Packet-in messages that may be sent at once above the rate.
    PacketInBurst(u32) in 1..=1_000_000, " packets";
    /// How many bytes of a packet a packet-in carries; 65535 (`OFPCML_NO_BUFFER`) is the whole packet.
    MissSendLen(u16) in 0..=65_535, " bytes";
    /// The longest pause between two attempts to reach a controller, in seconds.
    MaxBackoff(u16) in 1..=3600, " seconds";
    /// How long a controller may be silent before it is sent an echo request, in seconds; zero is for ever.
    EchoInterval(u16) in 0..=3600, " seconds";
    /// How many auxiliary connections a controller has beside the main connection.
    AuxiliaryCount(u8) in 0..=16, "";
    /// How many receive queues, and as many transmit queues, a port has.
    QueueCount(u16) in 1..=64, "";
    /// How many workers run a chain.
    LaneCount(u16) in 1..=128, "";
    /// How many functions a hop of a chain has in each lane.
    InstanceCount(u16) in 1..=64, "";
    /// Memory of a network function, in MiB.
    FunctionMemoryMib(u32) in 1..=1_048_576, " MiB";
    /// The first user id of a range for network functions. Ids below 1000 are those of the system.
    FunctionUid(u32) in 1_000..=2_147_000_000, "";
    /// Instructions of a WebAssembly function over one burst.
    Fuel(u64) in 1_000..=1_000_000_000, " instructions";
    /// The share of a function's process among those on its core.
    FunctionWeight(u16) in 1..=10_000, "";
    /// The greatest share of a core that a function's process may have.
    CpuPercent(u8) in 1..=100, " %";
    /// The largest layer-3 packet that a port carries, in bytes. A frame is 22 bytes longer: Ethernet
    /// header and two VLAN tags, so that the greatest frame is 9600 bytes.
    Mtu(u16) in 68..=9578, " bytes";
    /// Which queues of a port are served first: those of a higher priority.
    QueuePriority(u8) in 0..=7, "";
    /// The share of a queue among those of its priority.
    QueueWeight(u16) in 1..=255, "";
    /// How many packets wait in a queue of a port.
    QueueLength(u32) in 1..=65_536, " packets";
    /// How many bytes wait in a queue of a port.
    QueueSize(u32) in 64..=1_073_741_824, " bytes";
    /// Bytes that count for each frame besides its own.
    FrameOverhead(u8) in 0..=64, " bytes";
    /// How many bytes may come at once.
    BurstSize(u32) in 64..=1_073_741_824, " bytes";
    /// A differentiated services code point (RFC 2474).
    CodePoint(u8) in 0..=63, "";
    /// A priority of IEEE 802.1Q, or a traffic class of MPLS (RFC 5462).
    TrafficClass(u8) in 0..=7, "";
}

impl LaneCount {
    /// One lane.
    pub const ONE: LaneCount = LaneCount(1);
}
impl FunctionWeight {
    /// An ordinary share.
    pub const DEFAULT: FunctionWeight = FunctionWeight(100);
}
impl FunctionUid {
    /// Part of 60578 to 61183, which systemd leaves unused, and in the 65,536 ids that containers have.
    pub const DEFAULT: FunctionUid = FunctionUid(60_800);
}
impl InstanceCount {
    /// One function.
    pub const ONE: InstanceCount = InstanceCount(1);
}
impl WorkerCount {
    /// One worker.
    pub const ONE: WorkerCount = WorkerCount(1);
}
impl MemoryMib {
    /// 512 MiB.
    pub const DEFAULT: MemoryMib = MemoryMib(512);
}
impl TableCount {
    /// 64 tables.
    pub const DEFAULT: TableCount = TableCount(64);
}
impl MacAgeing {
    /// 300 seconds, the default of IEEE 802.1Q-2018, table 8-6.
    pub const DEFAULT: MacAgeing = MacAgeing(300);
}
impl MacTableSize {
    /// 8192 addresses.
    pub const DEFAULT: MacTableSize = MacTableSize(8192);
}
impl PacketInRate {
    /// 10,000 a second.
    pub const DEFAULT: PacketInRate = PacketInRate(10_000);
}
impl PacketInBurst {
    /// 2,500 packets: a quarter of a second at the default rate.
    pub const DEFAULT: PacketInBurst = PacketInBurst(2_500);
}
impl MissSendLen {
    /// 128 bytes (`OFP_DEFAULT_MISS_SEND_LEN`).
    pub const DEFAULT: MissSendLen = MissSendLen(128);
    /// The whole packet (`OFPCML_NO_BUFFER`).
    pub const NO_BUFFER: MissSendLen = MissSendLen(65_535);
}
impl MaxBackoff {
    /// 8 seconds.
    pub const DEFAULT: MaxBackoff = MaxBackoff(8);
}
impl EchoInterval {
    /// 5 seconds.
    pub const DEFAULT: EchoInterval = EchoInterval(5);
}
impl AuxiliaryCount {
    /// None.
    pub const DEFAULT: AuxiliaryCount = AuxiliaryCount(0);
}
impl QueueCount {
    /// One queue.
    pub const ONE: QueueCount = QueueCount(1);
}
impl QueuePriority {
    /// The lowest.
    pub const LOWEST: QueuePriority = QueuePriority(0);
}
impl QueueWeight {
    /// One part.
    pub const ONE: QueueWeight = QueueWeight(1);
}
impl QueueLength {
    /// 1,000 packets, as Linux has it.
    pub const DEFAULT: QueueLength = QueueLength(1_000);
}
impl FrameOverhead {
    /// None: frames count as OpenFlow counts their bytes.
    pub const NONE: FrameOverhead = FrameOverhead(0);
}
impl Mtu {
    /// 1500 bytes (IEEE 802.3).
    pub const ETHERNET: Mtu = Mtu(1500);

    /// The longest frame that the port carries, in bytes: Ethernet header and two VLAN tags added,
    /// frame check sequence not counted.
    pub const fn frame_size(self) -> u16 {
        self.0 + 22
    }
}

impl Field for PortNo {
    fn shape() -> Shape {
        Shape::Integer {
            min: 1,
            max: PortNo::MAX.raw() as u64,
            unit: "",
        }
    }

    fn decode(decoder: &mut Decoder, node: &Node) -> Option<PortNo> {
        let value = decode_integer(decoder, node, &Self::shape())?;
        u32::try_from(value).ok().map(PortNo::from_raw)
    }

    fn encode(&self, _: Detail) -> Option<Node> {
        Some(Value::Integer(self.raw().into()).into())
    }
}

/// A VLAN that a port can belong to: 1 to 4094 (IEEE 802.1Q-2018, table 9-2).
impl Field for Vid {
    fn shape() -> Shape {
        Shape::Integer {
            min: 1,
            max: 4094,
            unit: "",
        }
    }

    fn decode(decoder: &mut Decoder, node: &Node) -> Option<Vid> {
        let value = decode_integer(decoder, node, &Self::shape())?;
        u16::try_from(value).ok().and_then(|raw| Vid::new(raw).ok())
    }

    fn encode(&self, _: Detail) -> Option<Node> {
        Some(Value::Integer(self.raw().into()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_out_of_range_is_refused_with_the_range() {
        assert_eq!(Mtu::new(9578).map(Mtu::frame_size), Ok(9600));
        let error = Mtu::new(9579).unwrap_err();
        assert_eq!(
            error.to_string(),
            "9579 is out of range: expected 68 to 9578 bytes"
        );
        assert!(Mtu::new(67).is_err() && TableCount::new(0).is_err());
    }
}
