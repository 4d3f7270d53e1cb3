//! Conversations as frames of raw IPv4: endpoints, headers, segments and datagrams.

use core::net::Ipv4Addr;

use millrace_ips_engine::detect::DetectSettings;
use millrace_ips_engine::detect::Ruleset;
use millrace_ips_engine::{Engine, Event, Events, Frame, Mode, Settings};
use millrace_types::Time;

use crate::frames::RAW;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// The fields of headers that rules ask for.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) id: u16,
    /// Reserved 4, don't fragment 2, more fragments 1.
    pub(crate) fragment_bits: u8,
    pub(crate) window: u16,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    /// Flags of a segment that is sent by itself, without a connection.
    pub(crate) flags: Option<u8>,
    /// Type, code, identifier and sequence number.
    pub(crate) icmp: (u8, u8, u16, u16),
}

impl Default for Fields {
    fn default() -> Fields {
        Fields {
            ttl: 64,
            tos: 0,
            id: 1,
            fragment_bits: 2,
            window: 65_535,
            seq: 100,
            ack: 500,
            flags: None,
            icmp: (8, 0, 1, 1),
        }
    }
}

/// The end whose port differs from flow to flow.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Varies {
    Client,
    Server,
    Neither,
}

/// A message, with true if the server sends it.
pub(crate) type Message = (bool, Vec<u8>);

/// The messages of a flow, with true for those of the server.
#[derive(Debug, Clone)]
pub(crate) struct Conversation {
    pub(crate) protocol: u8,
    pub(crate) client: (Ipv4Addr, u16),
    pub(crate) server: (Ipv4Addr, u16),
    pub(crate) fields: Fields,
    pub(crate) messages: Vec<Message>,
    /// Number of flows with these messages.
    pub(crate) count: u16,
    pub(crate) varies: Varies,
}

/// Bytes of a segment.
const SEGMENT: usize = 1400;

impl Conversation {
    fn ip(&self, is_reply: bool, body: &[u8]) -> Vec<u8> {
        let fields = &self.fields;
        let (source, destination) = match is_reply {
            true => (self.server.0, self.client.0),
            false => (self.client.0, self.server.0),
        };
        let mut frame = vec![0x45, fields.tos];
        frame.extend(((20 + body.len()) as u16).to_be_bytes());
        frame.extend(fields.id.to_be_bytes());
        frame.extend((u16::from(fields.fragment_bits) << 13).to_be_bytes());
        frame.extend([fields.ttl, self.protocol, 0, 0]);
        frame.extend(source.octets());
        frame.extend(destination.octets());
        frame.extend(body);
        frame
    }

    fn ports(&self, is_reply: bool, flow: u16) -> [u8; 4] {
        // The port that the rule does not name differs from flow to flow.
        let (of_client, of_server) = match self.varies {
            Varies::Client => (flow, 0),
            Varies::Server => (0, flow),
            Varies::Neither => (0, 0),
        };
        let client = self.client.1.wrapping_add(of_client).to_be_bytes();
        let server = self.server.1.wrapping_add(of_server).to_be_bytes();
        match is_reply {
            true => [server[0], server[1], client[0], client[1]],
            false => [client[0], client[1], server[0], server[1]],
        }
    }

    fn segment(&self, is_reply: bool, flow: u16, numbers: [u32; 2], flags: u8, data: &[u8]) -> Vec<u8> {
        let mut body = self.ports(is_reply, flow).to_vec();
        body.extend(numbers[0].to_be_bytes());
        body.extend(numbers[1].to_be_bytes());
        body.extend([0x50, flags]);
        body.extend(self.fields.window.to_be_bytes());
        body.extend([0, 0, 0, 0]);
        body.extend(data);
        self.ip(is_reply, &body)
    }

    fn connection(&self, flow: u16, frames: &mut Vec<Vec<u8>>) {
        const FIN: u8 = 1;
        const SYN: u8 = 2;
        const ACK: u8 = 16;
        let mut next = [self.fields.seq, self.fields.ack];
        if let Some(flags) = self.fields.flags {
            for (is_reply, data) in &self.messages {
                frames.push(self.segment(*is_reply, flow, next, flags, data));
            }
            return;
        }
        let mut send = |frames: &mut Vec<Vec<u8>>, is_reply: bool, flags: u8, data: &[u8]| {
            let (own, other) = (usize::from(is_reply), usize::from(!is_reply));
            let ack = if flags & ACK == 0 { 0 } else { next[other] };
            frames.push(self.segment(is_reply, flow, [next[own], ack], flags, data));
            next[own] += data.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        };
        send(frames, false, SYN, &[]);
        send(frames, true, SYN | ACK, &[]);
        send(frames, false, ACK, &[]);
        for (is_reply, bytes) in &self.messages {
            for part in bytes.chunks(SEGMENT) {
                send(frames, *is_reply, ACK | 8, part);
                send(frames, !*is_reply, ACK, &[]);
            }
        }
        send(frames, false, FIN | ACK, &[]);
        send(frames, true, FIN | ACK, &[]);
        send(frames, false, ACK, &[]);
    }

    /// Returns the frames.
    pub(crate) fn frames(&self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for flow in 0..self.count {
            if self.protocol == TCP {
                self.connection(flow, &mut frames);
                continue;
            }
            for (is_reply, bytes) in &self.messages {
                let mut body = Vec::new();
                match self.protocol {
                    UDP => {
                        body.extend(self.ports(*is_reply, flow));
                        body.extend(((8 + bytes.len()) as u16).to_be_bytes());
                        body.extend([0, 0]);
                    }
                    ICMP => {
                        let (kind, code, id, seq) = self.fields.icmp;
                        body.extend([kind, code, 0, 0]);
                        body.extend(id.to_be_bytes());
                        body.extend(seq.to_be_bytes());
                    }
                    _ => {}
                }
                body.extend(bytes);
                frames.push(self.ip(*is_reply, &body));
            }
        }
        frames
    }
}

/// Returns the rules that raise an alert on the frames.
pub(crate) fn raised(rules: &Ruleset, frames: &[Vec<u8>], mode: Mode) -> Vec<u32> {
    let settings = Settings {
        mode,
        flows: 1024,
        records: false,
        detect: DetectSettings {
            alerts: usize::MAX,
            ..DetectSettings::default()
        },
        ..Settings::default()
    };
    let mut engine = Engine::new(settings, [1, 2]);
    let mut events = Events::default();
    for (at, bytes) in frames.iter().enumerate() {
        let frame = Frame {
            bytes: &mut bytes.clone(),
            link: RAW,
            time: Time::from_millis(1_000_000 + at as u64),
            number: at as u64 + 1,
        };
        engine.frame(rules, frame, &mut events);
    }
    engine.finish(rules, &mut events);
    let sid = |event: &Event| match event {
        Event::Alert(alert) => Some(alert.sid),
        _ => None,
    };
    events.list.iter().filter_map(sid).collect()
}
