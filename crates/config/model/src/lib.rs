//! Desired configuration of a switch: the settings that an operator decides, without the state that controllers or
//! packets create.
//!
//! A configuration is read from a TOML file ([`Config::from_toml`]) or from JSON over REST ([`Config::from_json`]);
//! both have the same tables and keys and share one decoder. Every leaf has a type whose values are always valid;
//! constraints between values are checked once, when the configuration is read. All errors are reported together, each
//! with its location. The crate is pure: no IO, no clock.
//!
//! ```
//! # use millrace_model::Config;
//! let config = Config::from_toml("millrace.toml", r#"
//!     [[bridge]]
//!     name = "br0"
//!     [[bridge.port]]
//!     name = "p1"
//!     number = 1
//!     device = "net_af_packet0,iface=veth1"
//! "#)?;
//! assert_eq!(config.bridges[0].ports[0].mtu.get(), 1500);
//! # Ok::<(), millrace_model::ConfigErrors>(())
//! ```

#![forbid(unsafe_code)]

mod bridge;
mod chain;
mod change;
mod choice;
mod config;
mod decode;
mod device;
mod diff;
mod error;
mod function;
mod ipfix;
mod lag;
mod lldp;
mod merge;
mod mirror;
mod name;
mod node;
mod nsh;
mod number;
mod oam;
mod object;
mod offload;
#[cfg(feature = "openapi")]
mod openapi;
mod ovsdb;
mod port;
mod qos;
mod reference;
mod routing;
mod rstp;
pub mod schema;
mod section;
mod setting;
mod sflow;
mod target;
mod text;
mod toml_writer;
mod tunnel;
mod validate;
mod vnic;
mod wan;

pub use bridge::{Bridge, Controller, Description, Listener, Table, Tls};
pub use chain::{Chain, Hop};
pub use change::{Change, ChangeKind};
pub use choice::{
    AuxiliaryTransport, CcmInterval, ChainSpread, ColorVerdict, FailMode, FlowCache, Fragments, HopClass,
    HugePages, Idle, InterfaceEgress, IpfixRecords, LagFallback, LagMode, LagRate, LocalPort, OffloadMode,
    OnFailure, PolicerKind, PortLldp, PortPipeline, RstpEdge, RstpPointToPoint, RstpVersion, SelectField,
    ServiceTag, Spread, StandaloneFlows, WanBypass, WhenFull,
};
pub use config::{Api, Config, System};
pub use device::{DevArgs, Device, DeviceError, PcapFiles, PciAddress, PciDevice, Vdev, WanEnd};
pub use diff::diff;
pub use error::{ConfigError, ConfigErrors, Location, Path, Problem, Step};
pub use function::{FunctionName, FunctionNameError};
pub use ipfix::{IPFIX_PORT, Ipfix, IpfixCollector, IpfixCollectorError, IpfixTransport};
pub use lag::{Lag, LagMember};
pub use lldp::Lldp;
pub use merge::merge_patch;
pub use mirror::Mirror;
pub use name::{
    AclName, BridgeName, ChainName, DescriptionError, DescriptionText, HopName, InterfaceName, LagName,
    LinkName, MirrorName, NameError, NamespaceName, PortName, SoftwareText, VrfName, WanName,
};
pub use nsh::{Nsh, NshPath};
pub use number::{
    AuxiliaryCount, BfdInterval, BfdMultiplier, BridgePriority, BurstSize, CodePoint, CoreId, CpuPercent,
    DampingTime, DatagramSize, DiscardLimit, EchoInterval, FlapCount, FlowCacheSize, FlowTimeout,
    ForwardDelay, FrameOverhead, Fuel, FunctionMemoryMib, FunctionWeight, HelloTime, HoldCount,
    InstanceCount, KernelTable, LacpPriority, LaneCount, LldpHold, LldpInterval, MacAgeing, MacTableSize,
    MaintenanceLevel, MaxAge, MaxBackoff, MemoryMib, MepNumber, MinLinks, MirrorVlan, MissSendLen, Mtu,
    ObservationId, OffloadEntries, OffloadOperations, PacketInBurst, PacketInRate, PathCost, PollingInterval,
    PortPriority, QueueCount, QueueLength, QueuePriority, QueueSize, QueueWeight, RangeError, RestoreTime,
    SampledHeaderSize, SamplingRate, SnapLen, SubAgent, TableCount, TableNumber, TableSize, TemplateInterval,
    TrafficClass, WanMtu, WanSeed, WorkerCount,
};
pub use oam::{Bfd, Ccm, FlapDamping};
pub use object::{ObjectError, ObjectName};
pub use offload::PortOffload;
pub use ovsdb::{Ovsdb, OvsdbTarget};
pub use port::{Dot1qTunnel, Port, VlanMode};
pub use qos::{ColorAction, Policer, Queue, Rate, RateError};
pub use reference::reference;
pub use routing::{
    Acl, AclRule, AclRuleError, Interface, InterfaceAddress, InterfaceAddressError, RouteSource,
    RouteSourceError, UnicastMac, UnicastMacError, Vrf,
};
pub use rstp::{PortRstp, Rstp};
pub use setting::{Setting, SettingError};
pub use sflow::{Collector, CollectorError, SFLOW_PORT, Sflow};
pub use target::{ControllerTarget, Host, ListenTarget, OPENFLOW_PORT, SocketPath, TargetError};
pub use tunnel::{Tunnel, TunnelKey, Underlay};
pub use vnic::{VirtioRings, Vnic, VnicKind, VnicRole};
pub use wan::{
    Wan, WanBackground, WanClass, WanCorrupt, WanDelay, WanDuplicate, WanFraming, WanJitter, WanLoss,
    WanMatch, WanMemory, WanNetem, WanOrder, WanOverMtu, WanPath, WanPreset, WanQueue, WanRate, WanReorder,
    WanTextError,
};
