//! Events that the engine reports.

use core::net::IpAddr;
use std::borrow::Cow;

use millrace_types::Time;

use crate::app::file::{FileHashes, FileState};
use crate::app::record::Record;
use crate::app::{AppEvent, AppProtocol, FrameReport, FrameView};
use crate::detect::dataset::{FoundJson, SetChange};
use crate::flow::{Direction, DirectionCounters, FlowKey, FlowState, FlowVerdict};
use crate::packet::ArpPacket;
use crate::packet::events::PacketEvents;
use crate::policy::{Cause, Policy};
use crate::verdict::{Action, DropReason};

/// The packet and flow of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    /// Number of the packet, from 1; 0 for events at the end of a flow.
    pub packet: u64,
    /// Time of the packet.
    pub time: Time,
    /// Number of the flow; 0 if there is none.
    pub flow: u64,
    /// Source of the packet.
    pub src: IpAddr,
    /// Destination of the packet.
    pub dst: IpAddr,
    /// Source and destination port; `None` for ICMP.
    pub ports: Option<(u16, u16)>,
    /// IP protocol.
    pub protocol: u8,
    /// Type and code of ICMP or ICMPv6.
    pub icmp: Option<(u8, u8)>,
    /// VLAN identifiers, outermost first; 0 for none.
    pub vlans: [u16; 3],
    /// The source of the packet.
    pub source: PacketSource,
}

/// IP protocols and their names in EVE. The names are those of the IANA registry; IPv4 inside IP is as RFC 2003 calls it.
const PROTOCOLS: &[(u8, &str)] = &[
    (0, "HOPOPT"),
    (1, "ICMP"),
    (2, "IGMP"),
    (4, "IP-in-IP"),
    (6, "TCP"),
    (8, "EGP"),
    (9, "IGP"),
    (17, "UDP"),
    (27, "RDP"),
    (33, "DCCP"),
    (41, "IPv6"),
    (43, "IPv6-Route"),
    (44, "IPv6-Frag"),
    (46, "RSVP"),
    (47, "GRE"),
    (50, "ESP"),
    (51, "AH"),
    (58, "IPv6-ICMP"),
    (59, "IPv6-NoNxt"),
    (60, "IPv6-Opts"),
    (88, "EIGRP"),
    (89, "OSPF"),
    (97, "ETHERIP"),
    (103, "PIM"),
    (108, "IPComp"),
    (112, "VRRP"),
    (115, "L2TP"),
    (132, "SCTP"),
    (135, "Mobility"),
    (136, "UDPLite"),
    (137, "MPLS-in-IP"),
    (139, "HIP"),
    (143, "Ethernet"),
];

impl Subject {
    /// Returns the subject with source and destination exchanged.
    #[must_use]
    pub fn reversed(self) -> Subject {
        Subject {
            src: self.dst,
            dst: self.src,
            ports: self.ports.map(|(src, dst)| (dst, src)),
            ..self
        }
    }

    /// Returns the name of the IP protocol; its number in three digits if it has no name.
    pub fn protocol_name(&self) -> Cow<'static, str> {
        protocol_name(self.protocol)
    }
}

/// Returns the name of an IP protocol; its number in three digits if it has no name.
pub fn protocol_name(protocol: u8) -> Cow<'static, str> {
    match PROTOCOLS.iter().find(|(number, _)| *number == protocol) {
        Some((_, name)) => Cow::Borrowed(name),
        None => Cow::Owned(format!("{protocol:03}")),
    }
}

/// Returns an address; one of IPv6 in full, with all digits of its eight groups, as Suricata writes it.
pub fn address_text(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => address.segments().map(|group| format!("{group:04x}")).join(":"),
    }
}

/// An alert: a rule matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// Packet and flow.
    pub subject: Subject,
    /// Number of the rule.
    pub sid: u32,
    /// Generator of the rule.
    pub gid: u32,
    /// Revision of the rule.
    pub rev: u32,
    /// Index of the rule in the rule set.
    pub rule: u32,
    /// The action of the rule. In mode `ids`, a rule with the action `drop` takes no action.
    pub action: Action,
    /// The action for the packet after all rules and policies.
    pub packet_action: Action,
    /// Application protocol of the flow.
    pub app: Option<AppProtocol>,
    /// Number of the transaction in the flow.
    pub transaction: Option<u64>,
    /// The frame on which the rule matched; `None` for a rule without `frame`.
    pub frame: Option<Box<FrameView>>,
    /// The tunnel that carries the packet; `None` for a packet outside of tunnels.
    pub tunnel: Option<Box<Tunnel>>,
    /// The JSON values of sets that the rule found.
    pub json: Vec<FoundJson>,
    /// Names and values that expressions of the rule captured for its alerts.
    pub captured: Vec<(Vec<u8>, Vec<u8>)>,
    /// Names and values that expressions of all rules captured for the alerts of the packet.
    pub packet_variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// Flow and transaction of the alert, if [`Settings::records`](crate::Settings::records) is set.
    pub context: Option<Box<AlertContext>>,
    /// Data that the frame of the alert does not have, if [`Settings::evidence`](crate::Settings::evidence) is set; `None` if the
    /// rule matched on the packet of the frame.
    pub evidence: Option<Box<Evidence>>,
}

/// Largest size of the stream data of an alert, as in the default configuration of Suricata.
pub const EVIDENCE_SIZE: usize = 4096;

/// Bytes on which a rule matched that are not those of a single frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evidence {
    /// Data of the stream, at most [`EVIDENCE_SIZE`] bytes, if the rule matched on the stream or a transaction of it.
    pub stream: Option<Vec<u8>>,
    /// The packet that was put together from fragments, around which there may be tunnels.
    pub packet: Option<Vec<u8>>,
    /// True if `packet` begins with the link header of the frame; false if it begins with the IP header.
    pub has_link: bool,
}

/// The origin of a packet: a frame, or what the engine took it out of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PacketSource {
    /// The packet came in a frame of its own.
    #[default]
    Frame,
    /// The packet, or one around it, was put together.
    Fragments,
    /// The engine: the last inspection of a flow.
    FlowEnd,
    /// A tunnel, by the innermost packet around the packet.
    Ipv4,
    Ipv6,
    Gre,
    Teredo,
    Vxlan,
    Geneve,
}

impl PacketSource {
    /// Every source.
    pub const ALL: &[PacketSource] = &[
        PacketSource::Frame,
        PacketSource::Fragments,
        PacketSource::FlowEnd,
        PacketSource::Ipv4,
        PacketSource::Ipv6,
        PacketSource::Gre,
        PacketSource::Teredo,
        PacketSource::Vxlan,
        PacketSource::Geneve,
    ];
}

/// The outermost packet around a packet of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunnel {
    pub src: IpAddr,
    pub dst: IpAddr,
    /// Source and destination port of TCP, UDP and SCTP.
    pub ports: Option<(u16, u16)>,
    /// IP protocol.
    pub protocol: u8,
    /// Number of packets around the packet, from 1.
    pub depth: u8,
}

/// The flow and the transaction to which an alert belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertContext {
    /// The state of the flow at the alert.
    pub flow: FlowSummary,
    /// The direction of the packet.
    pub direction: Direction,
    /// The fields of the transaction.
    pub record: Record,
    /// The files of the transaction.
    pub files: Vec<FileSummary>,
    /// Numbers of the set bits of the flow, as the rule set assigns them; at most [`ALERT_BITS`].
    pub bits: Vec<u32>,
    /// Numbers and values of the counters of the flow that were set; at most [`ALERT_BITS`].
    pub counters: Vec<(u32, u32)>,
    /// Names and values that expressions captured for the flow, at most [`ALERT_BITS`].
    pub variables: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Notes of rules about a flow that ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlowVariables {
    /// Numbers of the set bits of the flow, as the rule set assigns them; at most [`ALERT_BITS`].
    pub bits: Vec<u32>,
    /// Numbers and values of the counters of the flow that were set; at most [`ALERT_BITS`].
    pub counters: Vec<(u32, u32)>,
    /// Names and values that expressions captured for the flow, at most [`ALERT_BITS`].
    pub variables: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Largest number of set bits of a flow that an event lists, and of counters.
pub const ALERT_BITS: usize = 32;

/// The state of a flow at the time of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowSummary {
    /// Number of the flow.
    pub id: u64,
    /// The endpoints.
    pub key: FlowKey,
    /// Time of the first packet.
    pub start: Time,
    /// Time of the last packet.
    pub last: Time,
    pub state: FlowState,
    /// Packets and bytes, by [`Direction::index`].
    pub counters: [DirectionCounters; 2],
    /// Application protocol.
    pub app: Option<AppProtocol>,
    /// Application protocol of each direction, by [`Direction::index`].
    pub apps: [Option<AppProtocol>; 2],
    /// The protocol before the last change of protocol.
    pub original_app: Option<AppProtocol>,
    /// Type and code of the first message of ICMP, by [`Direction::index`].
    pub icmp: [Option<(u8, u8)>; 2],
    /// The decision about the flow.
    pub verdict: FlowVerdict,
    /// True if a rule raised an alert.
    pub is_alerted: bool,
    /// True if bytes escaped the parser: it refused them, or a limit was reached.
    pub has_parser_error: bool,
    /// Transactions that the parser began.
    pub transactions: u64,
    /// The connection; `None` for protocols other than TCP.
    pub tcp: Option<TcpSummary>,
}

/// The state of a TCP connection at the time of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpSummary {
    /// All control bits that were seen, without NS, by [`Direction::index`].
    pub flags: [u8; 2],
    /// `None` for a connection that is not followed.
    pub state: Option<TcpState>,
    /// True if bytes of the stream are lost, by [`Direction::index`].
    pub has_gaps: [bool; 2],
    /// True if the connection is followed although its handshake was not seen.
    pub is_midstream: bool,
}

/// The state of a connection between two ends, by the names that RFC 9293, section 3.3.2 gives the states of one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpState {
    /// The client sent a SYN.
    SynSent,
    /// The server answered with a SYN.
    SynReceived,
    Established,
    /// The server sent a FIN.
    FinWait1,
    /// The client acknowledged the FIN of the server.
    FinWait2,
    /// Both sent a FIN, the server first, and neither is acknowledged.
    Closing,
    /// Both sent a FIN, the server first, and that of the client is not acknowledged.
    TimeWait,
    /// The client sent a FIN.
    CloseWait,
    /// Both sent a FIN, the client first, and that of the server is not acknowledged.
    LastAck,
    Closed,
}

impl TcpState {
    /// Returns the name of the state, as Suricata writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TcpState::SynSent => "syn_sent",
            TcpState::SynReceived => "syn_recv",
            TcpState::Established => "established",
            TcpState::FinWait1 => "fin_wait1",
            TcpState::FinWait2 => "fin_wait2",
            TcpState::Closing => "closing",
            TcpState::TimeWait => "time_wait",
            TcpState::CloseWait => "close_wait",
            TcpState::LastAck => "last_ack",
            TcpState::Closed => "closed",
        }
    }
}

/// A file of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSummary {
    /// The direction in which it was sent.
    pub direction: Direction,
    /// The name; empty if none was sent.
    pub name: Vec<u8>,
    /// Bytes that were seen.
    pub size: u64,
    pub state: FileState,
    /// True if bytes in the middle are lost.
    pub has_gaps: bool,
    /// File type, detected from the first bytes.
    pub magic: Option<&'static str>,
    /// Hashes, if they were computed and all bytes were seen.
    pub hashes: Option<FileHashes>,
    /// True if a rule stores the file, and its bytes were reported.
    pub is_stored: bool,
    /// True if the file consists of ranges that several responses carried.
    pub is_joined: bool,
}

/// Largest size of the bytes of a [`FilePart`]. Events with one are small enough for the messages of functions.
pub const FILE_PART: usize = 1024;

/// Bytes of a file that a rule stores. The parts of a file are reported one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePart {
    /// The SHA-256 of the file.
    pub sha256: [u8; 32],
    /// Size of the file in bytes.
    pub size: u64,
    /// Offset of the part in the file, in bytes.
    pub offset: u64,
    pub bytes: Vec<u8>,
}

/// A complete transaction, or an incomplete one of a flow that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionEvent {
    /// The packet that completed the transaction, with the endpoints of the flow.
    pub subject: Subject,
    /// Number of the transaction in the flow.
    pub id: u64,
    /// The protocol.
    pub app: AppProtocol,
    /// The fields.
    pub record: Record,
    pub files: Vec<FileSummary>,
    pub anomalies: Vec<AppEvent>,
}

/// The reason why a flow ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowEnd {
    /// The flow was idle.
    Timeout,
    /// The endpoints began another connection.
    Reused,
    /// The flow was evicted, because the flow table had no room for another one.
    Evicted,
    /// The engine was shut down.
    Shutdown,
}

/// An event that the engine reports. Events other than alerts are written only if
/// [`Settings::records`](crate::Settings::records) is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A rule matched.
    Alert(Alert),
    /// A transaction ended.
    Transaction(Box<TransactionEvent>),
    /// A flow ended.
    Flow(Box<FlowSummary>, FlowEnd, FlowVariables),
    /// A packet is not forwarded; with the alert of the rule that dropped it, without flow and transaction, if a rule did.
    Drop(Subject, DropReason, Option<Box<Alert>>),
    /// The parser found anomalies that belong to no transaction.
    Anomaly(Subject, AppProtocol, Vec<AppEvent>),
    /// A policy decided about a packet that could not be inspected as it should be. Reported once for each
    /// flow and cause; for packets without a flow, each time. For [`Cause::MatchLimit`] with the rule that exceeded a limit.
    Exception(Subject, Cause, Policy, Option<RuleId>),
    /// A frame ended. Reported if [`Settings::frames`](crate::Settings::frames) is set, too.
    Frame(Subject, Box<FrameReport>),
    /// The decoder or the TCP engine found anomalies of a packet. Reported if
    /// [`Settings::packet_events`](crate::Settings::packet_events) is set, too. A frame that carries no IP has unspecified addresses.
    Packet(Subject, PacketEvents),
    /// A packet of ARP, whose sender and target are the endpoints. Reported if [`Settings::arp`](crate::Settings::arp) is set, too.
    Arp(Subject, ArpPacket),
    /// A part of a file that a rule stores; reported whether records are kept or not.
    File(FilePart),
    /// A rule changed a set whose values are written to a file; reported whether records are kept or not.
    Set(SetChange),
}

impl Event {
    /// Returns the packet and flow of the event; `None` for the end of a flow, and for files and sets.
    pub(crate) fn subject_mut(&mut self) -> Option<&mut Subject> {
        match self {
            Event::Alert(alert) => Some(&mut alert.subject),
            Event::Transaction(transaction) => Some(&mut transaction.subject),
            Event::Drop(subject, ..)
            | Event::Anomaly(subject, ..)
            | Event::Exception(subject, ..)
            | Event::Frame(subject, ..)
            | Event::Packet(subject, ..)
            | Event::Arp(subject, ..) => Some(subject),
            Event::Flow(..) | Event::File(_) | Event::Set(_) => None,
        }
    }
}

/// The numbers of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId {
    /// Generator.
    pub gid: u32,
    pub sid: u32,
}

/// The events of a packet, in order, until the caller takes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Events {
    /// The events.
    pub list: Vec<Event>,
}

impl Events {
    /// Adds an event.
    pub fn push(&mut self, event: Event) {
        self.list.push(event);
    }
}
