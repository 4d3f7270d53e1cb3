//! Records that leave the engine.

use core::net::IpAddr;

use millrace_types::Time;

use crate::app::AppProtocol;
use crate::verdict::Action;

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
    /// Source and destination port; for ICMP none.
    pub ports: Option<(u16, u16)>,
    /// IP protocol.
    pub protocol: u8,
}

/// A rule matched.
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
    /// The action that was taken.
    pub action: Action,
    /// Application protocol of the flow.
    pub app: Option<AppProtocol>,
    /// Number of the transaction in the flow.
    pub transaction: Option<u64>,
}

/// A record that leaves the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A rule matched.
    Alert(Alert),
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
