//! The writer, the fields that all events have, and objects that several events contain.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use millrace_ips_engine::app::file::FileState;
use millrace_ips_engine::event::{FileSummary, FlowSummary, PacketSource, Subject};

use crate::community_id::community_id;
use crate::ether::ether;
use crate::object::Object;
use crate::protocol::has_ports;
use crate::text::address;
use crate::timestamp::timestamp;
use crate::{Layout, RuleTables};

/// The bytes of the packet of an event and its link type; `None` if there is none.
pub(crate) type Frame<'a> = Option<(&'a [u8], u32)>;

/// Writes events as lines of JSON.
#[derive(Debug, Clone, Default)]
pub struct Writer {
    pub(crate) layout: Layout,
    pub(crate) rules: Arc<RuleTables>,
    /// The name of the capture; empty for live traffic.
    capture: String,
}

impl Writer {
    /// Returns a writer for the events of a rule set.
    pub fn new(layout: Layout, rules: impl Into<Arc<RuleTables>>) -> Writer {
        Writer {
            layout,
            rules: rules.into(),
            capture: String::new(),
        }
    }

    /// Sets the name of the capture from which the next events come.
    pub fn set_capture(&mut self, name: &str) {
        name.clone_into(&mut self.capture);
    }

    /// Begins a line with the fields that the events of all frames have.
    pub(crate) fn begin_frame<'a>(
        &self,
        subject: &Subject,
        kind: &str,
        frame: Frame<'_>,
        out: &'a mut Vec<u8>,
    ) -> Object<'a> {
        let mut line = Object::begin(out);
        line.field("timestamp", timestamp(subject.time));
        if subject.flow != 0 {
            line.field("flow_id", subject.flow);
        }
        if subject.packet != 0 {
            line.field("pcap_cnt", subject.packet);
        }
        line.field("event_type", kind);
        let vlans: Vec<u16> = subject.vlans.into_iter().take_while(|vlan| *vlan != 0).collect();
        if !vlans.is_empty() {
            line.field("vlan", vlans);
        }
        if let Some(frame) = frame.filter(|_| self.layout.ethernet) {
            ether(&mut line, subject, frame);
        }
        // The record of a flow that ended is about no packet.
        if subject.packet != 0 || subject.source == PacketSource::FlowEnd {
            line.field("pkt_src", source(subject.source));
        }
        line
    }

    /// Begins a line with the fields that all events of packets with IP have.
    pub(crate) fn begin<'a>(
        &self,
        subject: &Subject,
        kind: &str,
        frame: Frame<'_>,
        out: &'a mut Vec<u8>,
    ) -> Object<'a> {
        let mut line = self.begin_frame(subject, kind, frame, out);
        line.field("src_ip", address(subject.src));
        if let Some((source, _)) = subject.ports.filter(|_| has_ports(subject.protocol)) {
            line.field("src_port", source);
        }
        line.field("dest_ip", address(subject.dst));
        if let Some((_, destination)) = subject.ports.filter(|_| has_ports(subject.protocol)) {
            line.field("dest_port", destination);
        }
        line.field("proto", subject.protocol_name().as_ref());
        if let Some((kind, code)) = subject.icmp {
            line.field("icmp_type", kind).field("icmp_code", code);
        }
        line.field(
            "ip_v",
            match subject.src.is_ipv4() {
                true => 4,
                false => 6,
            },
        );
        let (source, destination) = subject.ports.unwrap_or_default();
        let ends = ((subject.src, source), (subject.dst, destination));
        if let Some(id) = community_id(ends.0, ends.1, subject.protocol) {
            line.field("community_id", id);
        }
        line
    }

    /// Ends a line.
    pub(crate) fn end(&self, mut line: Object<'_>) {
        if !self.capture.is_empty() {
            line.field("pcap_filename", &self.capture);
        }
        line.end_line();
    }
}

/// Writes the packets and bytes of a flow, and `midstream` if its handshake was not seen.
pub(crate) fn counters(out: &mut Object<'_>, flow: &FlowSummary) {
    let [to_server, to_client] = flow.counters;
    out.field("pkts_toserver", to_server.packets)
        .field("pkts_toclient", to_client.packets)
        .field("bytes_toserver", to_server.bytes)
        .field("bytes_toclient", to_client.bytes);
    if flow.tcp.is_some_and(|tcp| tcp.is_midstream) {
        out.field("midstream", true);
    }
}

/// Writes a file.
pub(crate) fn file(out: &mut Object<'_>, file: &FileSummary) {
    out.bytes("filename", &file.name);
    if let Some(magic) = file.magic {
        out.field("magic", magic);
    }
    out.field("gaps", file.has_gaps).field(
        "state",
        match file.state {
            FileState::Open => "UNKNOWN",
            FileState::Closed => "CLOSED",
            FileState::Truncated => "TRUNCATED",
        },
    );
    if let Some(hashes) = &file.hashes {
        out.field("md5", HEXLOWER.encode(&hashes.md5))
            .field("sha1", HEXLOWER.encode(&hashes.sha1))
            .field("sha256", HEXLOWER.encode(&hashes.sha256));
    }
    out.field("stored", file.is_stored).field("size", file.size);
}

/// Returns the name of a source as Suricata writes it.
fn source(source: PacketSource) -> &'static str {
    match source {
        PacketSource::Frame => "wire/pcap",
        PacketSource::Fragments => "defrag",
        PacketSource::FlowEnd => "stream (flow timeout)",
        PacketSource::Ipv4 => "ipv4 tunnel",
        PacketSource::Ipv6 => "ipv6 tunnel",
        PacketSource::Gre => "gre tunnel",
        PacketSource::Teredo => "teredo tunnel",
        PacketSource::Vxlan => "vxlan encapsulation",
        PacketSource::Geneve => "geneve encapsulation",
    }
}
