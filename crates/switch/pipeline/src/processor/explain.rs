//! What would happen to a packet, step by step: `millrace trace`.
//!
//! The packet goes through the very code that workers run, with an observer that writes everything down and
//! an egress that sends nothing. It raises no counter that anybody sees and teaches the MAC table nothing.

use core::cell::RefCell;
use core::fmt;
use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_flow::{Action, Match};
use millrace_types::{Cookie, GroupId, MeterId, PortNo, Priority, QueueId, TableId, Time};
use millrace_wire::Frame;

use super::observe::Observer;
use super::{Origin, Processor};
use crate::{
    Counters, DropReason, Egress, FlowEntry, Forwarding, Group, GroupKind, Learn, Meter, PacketInInfo,
};

/// One step of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// It was looked up, and matched.
    Matched {
        /// Where.
        table: TableId,
        /// Priority of the entry.
        priority: Priority,
        /// Mark of the entry.
        cookie: Cookie,
        /// Match of the entry.
        match_: Match,
    },
    /// It was looked up, and nothing matched.
    Missed {
        /// Where.
        table: TableId,
    },
    /// An action was executed.
    Action {
        /// Which.
        action: Action,
        /// Whether it is from the action set, at the end.
        from_set: bool,
    },
    /// The actions of a bucket follow.
    Bucket {
        /// The group.
        group: GroupId,
        /// What it does with its buckets.
        kind: GroupKind,
        /// Which bucket, from zero.
        bucket: usize,
    },
    /// It passed a meter.
    Meter {
        /// Which.
        meter: MeterId,
        /// The band that applies to it now, from zero.
        band: Option<usize>,
    },
    /// An action may have changed the packet: this is it now.
    Packet(Vec<u8>),
    /// NORMAL found the port of the destination in its MAC table, or floods.
    Station(Option<PortNo>),
    /// It left.
    Output {
        /// Where.
        port: PortNo,
        /// Through which queue, if one was chosen.
        queue: Option<QueueId>,
        /// The bytes.
        frame: Vec<u8>,
    },
    /// It went to the controllers.
    PacketIn {
        /// With this information.
        info: PacketInInfo,
        /// The bytes.
        frame: Vec<u8>,
    },
    /// It, or a copy, was dropped.
    Dropped(DropReason),
}

/// All steps of a packet, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Explanation {
    /// The steps.
    pub steps: Vec<Step>,
}

impl Explanation {
    /// The ports that it left by, in order.
    pub fn outputs(&self) -> impl Iterator<Item = PortNo> + '_ {
        self.steps.iter().filter_map(|step| match step {
            Step::Output { port, .. } => Some(*port),
            _ => None,
        })
    }
}

/// Says what happens to a frame that comes in at `origin`.
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

    fn station(&mut self, port: Option<PortNo>) {
        self.push(Step::Station(port));
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
            Step::Station(Some(port)) => write!(f, "    the MAC table says port {port}"),
            Step::Station(None) => write!(f, "    the MAC table does not know the destination: flood"),
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
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}
