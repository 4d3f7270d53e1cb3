//! Encoding of datagrams as XDR (RFC 4506): 32-bit words, and strings padded to whole words.

use std::net::IpAddr;

use crate::sample::{
    CounterSample, Datagram, DiscardedPacket, EthernetCounters, FlowSample, InterfaceCounters,
    MillraceRecord, Output, Sample,
};
use crate::{
    COUNTER_SAMPLE, DISCARDED_PACKET, ETHERNET, ETHERNET_COUNTERS, EXTENDED_SWITCH, FLOW_SAMPLE,
    INTERFACE_COUNTERS, MAX_HEADER_SIZE, MILLRACE_RECORD, OPENFLOW_PORT, PORT_NAME, RAW_HEADER, UNKNOWN,
    VERSION,
};

/// Size of the frame check sequence, in bytes. The frame length includes it; the sampled bytes do not.
const FCS_SIZE: u32 = 4;

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn word(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn long(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn string(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Writes the format number, the length of a body, and the body.
    fn sized(&mut self, format: u32, body: impl FnOnce(&mut Writer<'_>)) {
        self.word(format);
        let at = self.0.len();
        self.word(0);
        body(self);
        let size = (self.0.len() - at - 4) as u32;
        if let Some(length) = self.0.get_mut(at..at + 4) {
            length.copy_from_slice(&size.to_be_bytes());
        }
    }
}

impl Datagram {
    /// Returns the encoded datagram. The caller limits the size of the datagram with [`Sample::size`].
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(crate::MAX_DATAGRAM_SIZE);
        let mut out = Writer(&mut bytes);
        out.word(VERSION);
        match self.agent {
            IpAddr::V4(address) => {
                out.word(1);
                out.0.extend_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                out.word(2);
                out.0.extend_from_slice(&address.octets());
            }
        }
        out.word(self.sub_agent);
        out.word(self.sequence);
        out.word(self.uptime_ms);
        out.word(self.samples.len() as u32);
        for sample in &self.samples {
            sample.emit(&mut out);
        }
        bytes
    }
}

impl Sample {
    /// Returns the encoded size of the sample, in bytes. The header of a datagram adds at most 40 bytes.
    pub fn size(&self) -> usize {
        let mut bytes = Vec::new();
        self.emit(&mut Writer(&mut bytes));
        bytes.len()
    }

    fn emit(&self, out: &mut Writer<'_>) {
        match self {
            Sample::Flow(sample) => out.sized(FLOW_SAMPLE, |out| flow(sample, out)),
            Sample::Counters(sample) => out.sized(COUNTER_SAMPLE, |out| counters(sample, out)),
            Sample::Discarded(sample) => out.sized(DISCARDED_PACKET, |out| discarded(sample, out)),
        }
    }
}

fn flow(sample: &FlowSample, out: &mut Writer<'_>) {
    out.word(sample.sequence);
    // The type of the source is 0: an interface.
    out.word(sample.source & 0x00ff_ffff);
    out.word(sample.rate);
    out.word(sample.pool);
    out.word(sample.drops);
    out.word(sample.input & 0x3fff_ffff);
    out.word(match sample.output {
        Output::Interface(number) => number & 0x3fff_ffff,
        Output::Dropped(code) => 1 << 30 | code.0 & 0x3fff_ffff,
        Output::Several(count) => 2 << 30 | count & 0x3fff_ffff,
    });
    let records = 1 + u32::from(sample.switch.is_some()) + u32::from(sample.millrace.is_some());
    out.word(records);
    raw_header(sample.frame_size, &sample.header, out);
    if let Some(switch) = &sample.switch {
        out.sized(EXTENDED_SWITCH, |out| {
            out.word(switch.source_vlan);
            out.word(switch.source_priority);
            out.word(switch.destination_vlan);
            out.word(switch.destination_priority);
        });
    }
    if let Some(record) = &sample.millrace {
        millrace(record, out);
    }
}

/// Writes the raw header record: the first bytes of a frame, and the size of the frame.
fn raw_header(frame_size: u32, header: &[u8], out: &mut Writer<'_>) {
    out.sized(RAW_HEADER, |out| {
        out.word(ETHERNET);
        out.word(frame_size.saturating_add(FCS_SIZE));
        out.word(FCS_SIZE);
        out.string(header.get(..MAX_HEADER_SIZE).unwrap_or(header));
    });
}

fn millrace(record: &MillraceRecord, out: &mut Writer<'_>) {
    out.sized(MILLRACE_RECORD, |out| {
        out.long(record.metadata);
        out.long(record.cookie);
        out.string(record.drop_reason.as_bytes());
    });
}

fn discarded(sample: &DiscardedPacket, out: &mut Writer<'_>) {
    out.word(sample.sequence);
    // The source in two words: type 0, an interface, and its number.
    out.word(0);
    out.word(sample.source);
    out.word(sample.drops);
    out.word(sample.input);
    out.word(sample.output);
    out.word(sample.reason.0);
    out.word(1 + u32::from(sample.millrace.is_some()));
    raw_header(sample.frame_size, &sample.header, out);
    if let Some(record) = &sample.millrace {
        millrace(record, out);
    }
}

fn counters(sample: &CounterSample, out: &mut Writer<'_>) {
    out.word(sample.sequence);
    out.word(sample.source & 0x00ff_ffff);
    let records = [
        sample.counters.is_some(),
        sample.ethernet.is_some(),
        sample.openflow.is_some(),
        sample.name.is_some(),
    ];
    out.word(records.into_iter().map(u32::from).sum());
    if let Some(counters) = &sample.counters {
        out.sized(INTERFACE_COUNTERS, |out| interface(counters, out));
    }
    if let Some(counters) = &sample.ethernet {
        out.sized(ETHERNET_COUNTERS, |out| ethernet(counters, out));
    }
    if let Some(port) = &sample.openflow {
        out.sized(OPENFLOW_PORT, |out| {
            out.long(port.dpid);
            out.word(port.number);
        });
    }
    if let Some(name) = &sample.name {
        out.sized(PORT_NAME, |out| out.string(name.as_bytes()));
    }
}

fn ethernet(counters: &EthernetCounters, out: &mut Writer<'_>) {
    // Alignment, FCS, single and multiple collisions, SQE, deferred, late and excessive collisions.
    for _ in 0..8 {
        out.word(UNKNOWN);
    }
    out.word(counters.transmit_errors);
    // Carrier sense, frame too long.
    for _ in 0..2 {
        out.word(UNKNOWN);
    }
    out.word(counters.receive_errors);
    // Symbol errors.
    out.word(UNKNOWN);
}

fn interface(counters: &InterfaceCounters, out: &mut Writer<'_>) {
    out.word(counters.interface);
    // ifType 6: ethernetCsmacd.
    out.word(6);
    out.long(counters.speed);
    // Full duplex.
    out.word(1);
    out.word(u32::from(counters.is_admin_up) | u32::from(counters.is_link_up) << 1);
    out.long(counters.in_octets);
    // Unicast, multicast, broadcast; the last word is unknown protocols.
    for word in [
        counters.in_packets,
        UNKNOWN,
        UNKNOWN,
        counters.in_discards,
        counters.in_errors,
        UNKNOWN,
    ] {
        out.word(word);
    }
    out.long(counters.out_octets);
    // The last word is promiscuous mode.
    for word in [
        counters.out_packets,
        UNKNOWN,
        UNKNOWN,
        counters.out_discards,
        counters.out_errors,
        0,
    ] {
        out.word(word);
    }
}
