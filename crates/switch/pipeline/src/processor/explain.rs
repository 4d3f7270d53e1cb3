//! The explanation of what happens to a packet, step by step, for `millrace trace`.
//!
//! The packet goes through the code that workers run, with an observer that records every step and an egress
//! that sends nothing. It changes no counter that is ever read, and its source address is not learned.

use core::cell::RefCell;
use core::fmt;
use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_flow::{Action, Match};
use millrace_types::{Cookie, GroupId, MeterId, PortNo, Priority, QueueId, TableId, Time};
use millrace_wire::Frame;

use super::Processor;
use super::observe::{NormalReason, Observer};
use super::origin::Origin;
use crate::{
    Counters, DropReason, Egress, FlowEntry, Forwarding, Group, GroupKind, Learn, Meter, PacketInInfo,
};

/// One step of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// An entry of the table matched the packet.
    Matched {
        table: TableId,
        /// The priority of the entry.
        priority: Priority,
        /// The cookie of the entry.
        cookie: Cookie,
        /// The match of the entry.
        match_: Match,
    },
    /// No entry of the table matched the packet.
    Missed { table: TableId },
    /// NORMAL forwards the packet without the tables, because no controller is connected.
    Standalone,
    /// NORMAL forwards the packet without the tables, because the configuration of its port or VLAN says so.
    NormalIngress,
    /// An action was executed.
    Action {
        action: Action,
        /// True if the action comes from the action set.
        from_set: bool,
    },
    /// The actions of a bucket follow.
    Bucket {
        group: GroupId,
        /// The type of the group.
        kind: GroupKind,
        /// The index of the bucket, from zero.
        bucket: usize,
    },
    /// The packet passed a meter.
    Meter {
        meter: MeterId,
        /// The index of the band that applies now, from zero.
        band: Option<usize>,
    },
    /// The packet as it is after an action that may have changed it.
    Packet(Vec<u8>),
    /// NORMAL found the port of the destination in the MAC table, or floods.
    MacLookup(Option<PortNo>),
    /// The packet was output.
    Output {
        port: PortNo,
        /// The queue, if one was set.
        queue: Option<QueueId>,
        /// The bytes of the frame.
        frame: Vec<u8>,
    },
    /// The packet was sent to the controllers.
    PacketIn {
        /// The fields of the packet-in.
        info: PacketInInfo,
        /// The bytes of the frame.
        frame: Vec<u8>,
    },
    /// The packet or a copy was dropped.
    Dropped(DropReason),
    /// The control side takes the packet: it belongs to the OAM session of a port.
    Oam(PortNo),
    /// The control side takes the packet: it asks for, or announces, an address on the link of a tunnel's underlay.
    Neighbour(PortNo),
    /// The packet is a fragment, and waits for the others of its packet.
    KeptFragment,
}

/// All steps of a packet, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Explanation {
    pub steps: Vec<Step>,
}

impl Explanation {
    /// Returns the ports that the packet was output to, in order.
    pub fn outputs(&self) -> impl Iterator<Item = PortNo> + '_ {
        self.steps.iter().filter_map(|step| match step {
            Step::Output { port, .. } => Some(*port),
            _ => None,
        })
    }
}

/// Returns the steps of a frame that arrives with this origin.
pub fn explain(fwd: &Forwarding, origin: impl Into<Origin>, frame: &[u8], now: Time) -> Explanation {
    let steps = RefCell::new(Vec::new());
    let mut processor = Processor::new(Arc::new(Counters::default()));
    let mut burst: ArrayVec<Frame, BURST> = ArrayVec::new();
    burst.push(Frame::new(frame));
    let (mut egress, mut observer) = (Recorder(&steps), Recorder(&steps));
    processor
        .run(fwd, origin.into(), now, &mut egress, &mut observer)
        .burst(&mut burst);
    Explanation {
        steps: steps.into_inner(),
    }
}

struct Recorder<'a>(&'a RefCell<Vec<Step>>);

impl Recorder<'_> {
    fn push(&self, step: Step) {
        self.0.borrow_mut().push(step);
    }
}

impl Observer<Frame> for Recorder<'_> {
    const IS_REAL: bool = false;
    const IS_WATCHING: bool = true;

    fn lookup(&mut self, table: TableId, entry: Option<&FlowEntry>) {
        self.push(match entry {
            None => Step::Missed { table },
            Some(entry) => Step::Matched {
                table,
                priority: entry.priority(),
                cookie: entry.cookie(),
                match_: entry.match_().clone(),
            },
        });
    }

    fn action(&mut self, action: &Action, from_set: bool) {
        self.push(Step::Action {
            action: *action,
            from_set,
        });
    }

    fn bucket(&mut self, group: &Group, bucket: usize) {
        self.push(Step::Bucket {
            group: group.id,
            kind: group.kind,
            bucket,
        });
    }

    fn meter(&mut self, meter: &Meter, band: Option<usize>) {
        self.push(Step::Meter {
            meter: meter.id,
            band,
        });
    }

    fn packet(&mut self, packet: &Frame) {
        self.push(Step::Packet(packet.bytes().to_vec()));
    }

    fn dropped(&mut self, reason: DropReason) {
        self.push(Step::Dropped(reason));
    }

    fn mac_lookup(&mut self, port: Option<PortNo>) {
        self.push(Step::MacLookup(port));
    }

    fn without_tables(&mut self, reason: NormalReason) {
        self.push(match reason {
            NormalReason::NoController => Step::Standalone,
            NormalReason::Configured => Step::NormalIngress,
        });
    }

    fn kept_fragment(&mut self) {
        self.push(Step::KeptFragment);
    }
}

impl Egress<Frame> for Recorder<'_> {
    fn transmit(&mut self, port: PortNo, queue: Option<QueueId>, packet: Frame) {
        let frame = packet.bytes().to_vec();
        self.push(Step::Output { port, queue, frame });
    }

    fn packet_in(&mut self, info: PacketInInfo, packet: Frame) {
        let frame = packet.bytes().to_vec();
        self.push(Step::PacketIn { info, frame });
    }

    fn learn(&mut self, _: Learn) {}

    fn neighbour(&mut self, underlay: PortNo, _: Frame) {
        self.push(Step::Neighbour(underlay));
    }

    fn oam(&mut self, port: PortNo, _: Frame) {
        self.push(Step::Oam(port));
    }

    fn traced(&mut self, _: u64, _: PortNo, _: Frame) {}
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Matched {
                table,
                priority,
                cookie,
                match_,
            } => {
                write!(f, "table {table}: priority {priority}, cookie {cookie}, ")?;
                if match_.is_any() {
                    f.write_str("any packet")
                } else {
                    write!(f, "{match_}")
                }
            }
            Step::Missed { table } => write!(f, "table {table}: no match"),
            Step::Standalone => {
                f.write_str("no table: no controller is connected, NORMAL forwards all packets")
            }
            Step::NormalIngress => f.write_str(
                "no table: NORMAL forwards all packets of this port or VLAN (pipeline = \"normal\", normal_vlans)",
            ),
            Step::Action { action, from_set } => {
                let list = if *from_set { "action set: " } else { "" };
                write!(f, "  {list}{action}")
            }
            Step::Bucket { group, kind, bucket } => write!(f, "    group {group} ({kind}), bucket {bucket}:"),
            Step::Meter { meter, band: None } => write!(f, "  meter {meter}: within its rates now"),
            Step::Meter {
                meter,
                band: Some(band),
            } => write!(f, "  meter {meter}: band {band} applies now"),
            Step::Packet(bytes) => write!(f, "    now {}", Hex(bytes)),
            Step::MacLookup(Some(port)) => write!(f, "    the MAC table says port {port}"),
            Step::MacLookup(None) => write!(f, "    the MAC table does not know the destination: flood"),
            Step::Output { port, queue, frame } => {
                write!(f, "    -> port {port}")?;
                if let Some(queue) = queue {
                    write!(f, ", queue {queue}")?;
                }
                write!(f, ", {} bytes: {}", frame.len(), Hex(frame))
            }
            Step::PacketIn { info, frame } => {
                let reason = match info.reason {
                    crate::PacketInReason::NoMatch => "no match",
                    crate::PacketInReason::Action => "action",
                    crate::PacketInReason::InvalidTtl => "invalid TTL",
                };
                write!(
                    f,
                    "    -> controller ({reason}), {} bytes: {}",
                    frame.len(),
                    Hex(frame)
                )
            }
            Step::Dropped(reason) => write!(f, "    dropped: {reason}. {}", reason.description()),
            Step::Oam(port) => write!(f, "    taken by the OAM session of port {port}"),
            Step::Neighbour(port) => write!(f, "    taken by the address resolution at port {port}"),
            Step::KeptFragment => f.write_str("    a fragment: waits for the others of its packet"),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}
