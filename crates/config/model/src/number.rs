//! Numbers of the configuration. Each has a separate type; its values are always in range.

use millrace_types::{PortNo, Vid};
use thiserror::Error;

use crate::decode::{Decoder, Detail, Field, decode_integer};
use crate::node::{Node, Value};
use crate::schema::Shape;

/// A number outside the range of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{found} is out of range: expected {min} to {max}{unit}")]
pub struct RangeError {
    /// The rejected number.
    pub found: u64,
    /// The smallest valid value.
    pub min: u64,
    /// The largest valid value.
    pub max: u64,
    /// The unit with a leading blank, or an empty string.
    pub unit: &'static str,
}

macro_rules! bounded {
    ($( $(#[doc = $doc:literal])+ $Name:ident($int:ident) in $min:literal ..= $max:literal, $unit:literal; )*) => {$(
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $Name($int);

        impl $Name {
            /// The smallest value.
            pub const MIN: $Name = $Name($min);
            /// The largest value.
            pub const MAX: $Name = $Name($max);

            /// Returns the number as a value of this type.
            ///
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

            /// Returns the value as an integer.
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
    /// The number of worker threads that forward packets.
    WorkerCount(u16) in 1..=128, "";
    /// A CPU core as the operating system numbers it.
    CoreId(u16) in 0..=1023, "";
    /// The size of packet memory, in MiB.
    MemoryMib(u32) in 64..=1_048_576, " MiB";
    /// The number of flow tables of a bridge.
    TableCount(u8) in 1..=255, "";
    /// The number of a flow table.
    TableNumber(u8) in 0..=254, "";
    /// The number of a routing table of the kernel.
    KernelTable(u32) in 1..=4_294_967_295, "";
    /// The capacity of a flow table, in flow entries.
    TableSize(u32) in 1..=4_000_000, " entries";
    /// The ageing time of a learned MAC address, in seconds (the range of IEEE 802.1Q-2018, table 8-6).
    MacAgeing(u32) in 10..=1_000_000, " seconds";
    /// The capacity of a bridge's MAC address table.
    MacTableSize(u32) in 16..=1_048_576, " addresses";
    /// The rate limit of packet-in messages, per second; zero is no limit.
    PacketInRate(u32) in 0..=100_000_000, " a second";
    /// The burst size of the packet-in rate limit, in messages.
    PacketInBurst(u32) in 1..=1_000_000, " packets";
    /// The number of bytes of a packet that a packet-in carries; 65535 (`OFPCML_NO_BUFFER`) is the whole packet.
    MissSendLen(u16) in 0..=65_535, " bytes";
    /// The longest pause between two attempts to reach a controller, in seconds.
    MaxBackoff(u16) in 1..=3600, " seconds";
    /// The idle time after which a controller is sent an echo request, in seconds; zero sends none.
    EchoInterval(u16) in 0..=3600, " seconds";
    /// The number of auxiliary connections to a controller.
    AuxiliaryCount(u8) in 0..=16, "";
    /// The number of receive queues of a port; the number of transmit queues is the same.
    QueueCount(u16) in 1..=64, "";
    /// The number of entries of a device that classifies packets.
    OffloadEntries(u32) in 1..=65_536, " entries";
    /// The number of entries that are added to a device and removed from it, per second.
    OffloadOperations(u32) in 1..=1_000_000, " a second";
    /// An interval of BFD packets, in milliseconds.
    BfdInterval(u16) in 50..=1000, " ms";
    /// The number of missing BFD packets in a row that ends a session (RFC 5880, detection multiplier).
    BfdMultiplier(u8) in 1..=50, "";
    /// The number of a maintenance end point (IEEE 802.1ag-2007, section 19.2.1).
    MepNumber(u16) in 1..=8191, "";
    /// The level of a maintenance domain.
    MaintenanceLevel(u8) in 0..=7, "";
    /// The wait-to-restore time: the time for which a port must work after a failure before it is live, in
    /// seconds.
    RestoreTime(u16) in 0..=3600, " seconds";
    /// The number of times that a link goes down before it is damped.
    FlapCount(u16) in 1..=100, "";
    /// The mean number of packets for each sFlow sample; 0 for no samples.
    SamplingRate(u32) in 0..=16_777_215, "";
    /// The number of an observation domain or point of IPFIX.
    ObservationId(u32) in 0..=4_294_967_295, "";
    /// A timeout of flows of IPFIX, in seconds.
    FlowTimeout(u16) in 0..=3600, " seconds";
    /// The number of flows that IPFIX keeps.
    FlowCacheSize(u32) in 1..=1_000_000, " flows";
    /// The interval of templates of IPFIX, in seconds.
    TemplateInterval(u16) in 1..=3600, " seconds";
    /// The number of bytes of a packet that its sFlow sample contains.
    SampledHeaderSize(u16) in 64..=256, " bytes";
    /// The maximum size of the copies of a mirror, in bytes; the smallest is an Ethernet header.
    SnapLen(u16) in 14..=65_535, " bytes";
    /// A VLAN whose packets a mirror copies; zero for packets without a VLAN.
    MirrorVlan(u16) in 0..=4095, "";
    /// The interval of sFlow counter samples, in seconds.
    PollingInterval(u16) in 0..=3600, " seconds";
    /// The priority of a bridge in a spanning tree; in RSTP a multiple of 4096.
    BridgePriority(u16) in 0..=65_535, "";
    /// The number of BPDUs that a port sends in one second at most.
    HoldCount(u8) in 1..=10, "";
    /// The hello time of RSTP, in seconds.
    HelloTime(u8) in 1..=10, " seconds";
    /// The maximum age of RSTP, in seconds.
    MaxAge(u8) in 6..=40, " seconds";
    /// The forward delay of RSTP, in seconds.
    ForwardDelay(u8) in 4..=30, " seconds";
    /// The cost of a path in RSTP.
    PathCost(u32) in 1..=200_000_000, "";
    /// The priority of a port in RSTP; a multiple of 16.
    PortPriority(u8) in 0..=240, "";
    /// The interval of LLDPDUs, in seconds.
    LldpInterval(u16) in 1..=3600, " seconds";
    /// The number of intervals for which LLDP information is valid.
    LldpHold(u8) in 1..=100, "";
    /// A priority in LACP; lower is better.
    LacpPriority(u16) in 0..=65_535, "";
    /// The number of usable members below which a LAG is down.
    MinLinks(u16) in 1..=16, "";
    /// The number of the sub-agent of a bridge in sFlow.
    SubAgent(u32) in 0..=4_294_967_295, "";
    /// The maximum number of sFlow notifications of dropped packets per second.
    DiscardLimit(u32) in 0..=100_000, "";
    /// The size of an sFlow datagram, in bytes of UDP payload.
    DatagramSize(u16) in 600..=8_900, " bytes";
    /// A time of flap damping, in seconds.
    DampingTime(u16) in 1..=3600, " seconds";
    /// The number of workers that run a chain.
    LaneCount(u16) in 1..=128, "";
    /// The number of instances of a hop's function in each lane.
    InstanceCount(u16) in 1..=64, "";
    /// The memory limit of a network function, in MiB.
    FunctionMemoryMib(u32) in 1..=1_048_576, " MiB";
    /// The seed of an emulated path.
    WanSeed(u32) in 0..=4_294_967_295, "";
    /// The MTU of an emulated path, in bytes of layer 3 (the range of the emulator).
    WanMtu(u16) in 68..=65_535, " bytes";
    /// The first user id of a range for network functions. Ids below 1000 are reserved for system accounts.
    FunctionUid(u32) in 1_000..=2_147_000_000, "";
    /// The number of instructions that a WebAssembly function may execute for one burst.
    Fuel(u64) in 1_000..=1_000_000_000, " instructions";
    /// The CPU weight of a function's process among the processes on its core.
    FunctionWeight(u16) in 1..=10_000, "";
    /// The largest share of a core that a function's process may use, in percent.
    CpuPercent(u8) in 1..=100, " %";
    /// The largest layer-3 packet that a port carries, in bytes. A frame is up to 22 bytes longer (Ethernet header and
    /// two VLAN tags), so that the largest frame has 9600 bytes.
    Mtu(u16) in 68..=9578, " bytes";
    /// The scheduling priority of a queue of a port; queues of a higher priority are served first.
    QueuePriority(u8) in 0..=7, "";
    /// The scheduling weight of a queue among the queues of its priority.
    QueueWeight(u16) in 1..=255, "";
    /// The capacity of a queue of a port, in packets.
    QueueLength(u32) in 1..=65_536, " packets";
    /// The capacity of a queue of a port, in bytes.
    QueueSize(u32) in 64..=1_073_741_824, " bytes";
    /// The number of bytes that a rate counts for each frame besides the frame itself.
    FrameOverhead(u8) in 0..=64, " bytes";
    /// The burst size of a rate limit, in bytes.
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
    /// The default weight, 100.
    pub const DEFAULT: FunctionWeight = FunctionWeight(100);
}
impl WanSeed {
    /// The seed unless configured.
    pub const DEFAULT: WanSeed = WanSeed(1);
}

impl FunctionUid {
    /// The default. It lies in 60578 to 61183, a range that systemd leaves unused. It is below 65,536, so it
    /// exists in a container with a mapping of 65,536 ids.
    pub const DEFAULT: FunctionUid = FunctionUid(60_800);
}
impl InstanceCount {
    /// One instance.
    pub const ONE: InstanceCount = InstanceCount(1);
}
impl WorkerCount {
    /// One worker.
    pub const ONE: WorkerCount = WorkerCount(1);
}
impl MemoryMib {
    /// The default, 512 MiB.
    pub const DEFAULT: MemoryMib = MemoryMib(512);
}
impl TableCount {
    /// The default, 64 tables.
    pub const DEFAULT: TableCount = TableCount(64);
}
impl MacAgeing {
    /// The default of IEEE 802.1Q-2018, table 8-6.
    pub const DEFAULT: MacAgeing = MacAgeing(300);
}
impl MacTableSize {
    /// The default, 8192 addresses.
    pub const DEFAULT: MacTableSize = MacTableSize(8192);
}
impl PacketInRate {
    /// The default, 10,000 per second.
    pub const DEFAULT: PacketInRate = PacketInRate(10_000);
}
impl PacketInBurst {
    /// A quarter of a second at the default rate.
    pub const DEFAULT: PacketInBurst = PacketInBurst(2_500);
}
impl MissSendLen {
    /// `OFP_DEFAULT_MISS_SEND_LEN`.
    pub const DEFAULT: MissSendLen = MissSendLen(128);
    /// The whole packet (`OFPCML_NO_BUFFER`).
    pub const NO_BUFFER: MissSendLen = MissSendLen(65_535);
}
impl MaxBackoff {
    /// The default, 8 seconds.
    pub const DEFAULT: MaxBackoff = MaxBackoff(8);
}
impl EchoInterval {
    /// The default, 5 seconds.
    pub const DEFAULT: EchoInterval = EchoInterval(5);
}
impl AuxiliaryCount {
    /// No auxiliary connection.
    pub const DEFAULT: AuxiliaryCount = AuxiliaryCount(0);
}
impl SamplingRate {
    /// The default, one sample for 1,000 packets.
    pub const DEFAULT: SamplingRate = SamplingRate(1000);
}
impl ObservationId {
    /// The number 0.
    pub const ZERO: ObservationId = ObservationId(0);
}
impl FlowTimeout {
    /// The default of the active timeout, 60 seconds.
    pub const ACTIVE: FlowTimeout = FlowTimeout(60);
    /// The default of the idle timeout, 15 seconds.
    pub const IDLE: FlowTimeout = FlowTimeout(15);
}
impl FlowCacheSize {
    /// The default, 16,384 flows.
    pub const DEFAULT: FlowCacheSize = FlowCacheSize(16_384);
}
impl TemplateInterval {
    /// The default, one minute.
    pub const DEFAULT: TemplateInterval = TemplateInterval(60);
}
impl SampledHeaderSize {
    /// The default of sFlow, 128 bytes.
    pub const DEFAULT: SampledHeaderSize = SampledHeaderSize(128);
}
impl PollingInterval {
    /// The default, 20 seconds.
    pub const DEFAULT: PollingInterval = PollingInterval(20);
}
impl BridgePriority {
    /// The default of IEEE 802.1D-2004.
    pub const DEFAULT: BridgePriority = BridgePriority(32_768);
}
impl HelloTime {
    /// The default of IEEE 802.1D-2004, 2 seconds.
    pub const DEFAULT: HelloTime = HelloTime(2);
}
impl HoldCount {
    /// The default of IEEE 802.1D-2004.
    pub const DEFAULT: HoldCount = HoldCount(6);
}
impl MaxAge {
    /// The default of IEEE 802.1D-2004, 20 seconds.
    pub const DEFAULT: MaxAge = MaxAge(20);
}
impl ForwardDelay {
    /// The default of IEEE 802.1D-2004, 15 seconds.
    pub const DEFAULT: ForwardDelay = ForwardDelay(15);
}
impl PortPriority {
    /// The default of IEEE 802.1D-2004.
    pub const DEFAULT: PortPriority = PortPriority(128);
}
impl LldpInterval {
    /// The default of IEEE 802.1AB-2016, 30 seconds.
    pub const DEFAULT: LldpInterval = LldpInterval(30);
}
impl LldpHold {
    /// The default of IEEE 802.1AB-2016, 4 intervals.
    pub const DEFAULT: LldpHold = LldpHold(4);
}
impl LacpPriority {
    /// The default of most systems.
    pub const DEFAULT: LacpPriority = LacpPriority(32_768);
}
impl MinLinks {
    /// One member.
    pub const ONE: MinLinks = MinLinks(1);
}
impl SubAgent {
    /// The first sub-agent.
    pub const ZERO: SubAgent = SubAgent(0);
}
impl DiscardLimit {
    /// No notifications.
    pub const NONE: DiscardLimit = DiscardLimit(0);
}
impl DatagramSize {
    /// The default, 1,400 bytes, which fits an Ethernet frame with room for tunnels.
    pub const DEFAULT: DatagramSize = DatagramSize(1400);
}
impl BfdInterval {
    /// The default, 300 ms.
    pub const DEFAULT: BfdInterval = BfdInterval(300);
}
impl BfdMultiplier {
    /// The default, 3 packets.
    pub const DEFAULT: BfdMultiplier = BfdMultiplier(3);
}
impl MaintenanceLevel {
    /// The level of a link, 0.
    pub const LINK: MaintenanceLevel = MaintenanceLevel(0);
}
impl RestoreTime {
    /// The default, 60 seconds.
    pub const DEFAULT: RestoreTime = RestoreTime(60);
}
impl FlapCount {
    /// The default, 3 times.
    pub const DEFAULT: FlapCount = FlapCount(3);
}
impl DampingTime {
    /// The default time in which flaps are counted, 5 seconds.
    pub const WINDOW: DampingTime = DampingTime(5);
    /// The default time for which a damped link counts as down, 30 seconds.
    pub const HOLD_DOWN: DampingTime = DampingTime(30);
}
impl OffloadOperations {
    /// The default.
    pub const DEFAULT: OffloadOperations = OffloadOperations(2000);
}
impl QueueCount {
    /// One queue.
    pub const ONE: QueueCount = QueueCount(1);
}
impl QueuePriority {
    /// The lowest priority.
    pub const LOWEST: QueuePriority = QueuePriority(0);
}
impl QueueWeight {
    /// The smallest weight.
    pub const ONE: QueueWeight = QueueWeight(1);
}
impl QueueLength {
    /// 1,000 packets, the default `txqueuelen` of Linux.
    pub const DEFAULT: QueueLength = QueueLength(1_000);
}
impl FrameOverhead {
    /// No overhead: frames count as in OpenFlow byte counters.
    pub const NONE: FrameOverhead = FrameOverhead(0);
}
impl KernelTable {
    /// `RT_TABLE_MAIN`.
    pub const MAIN: KernelTable = KernelTable(254);
}

impl Mtu {
    /// 1500 bytes (IEEE 802.3).
    pub const ETHERNET: Mtu = Mtu(1500);

    /// Returns the size of the longest frame that the port carries, in bytes: the MTU, the Ethernet header and two
    /// VLAN tags, without the frame check sequence.
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
