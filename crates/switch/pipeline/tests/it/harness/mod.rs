//! A bridge in memory: a control side, two readers' copies that are updated as the datapath does it, one worker, and
//! an egress that records every call.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part of the harness"
)]

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_flow::{Action, Bucket, Field, Instructions, Match, SetField};
use millrace_pipeline::{
    Band, BandKind, Control, ControlConfig, DropReason, Egress, FlowFilter, FlowMod, FlowModCommand,
    FlowModError, FlowRemoved, Forwarding, Group, GroupKind, GroupMod, GroupModError, GroupStat, Learn,
    Meter, MeterFlags, MeterMod, MeterModError, ModOutcome, Op, Origin, PacketInInfo, Port, Processor,
};
use millrace_types::{GroupId, MeterId, PortNo, Priority, QueueId, TableId, Time};
use millrace_wire::{Frame, Packet};

/// A call of an egress.
#[derive(Debug, PartialEq, Eq, Clone)]
pub enum Event {
    Out(u32, Option<u32>, Vec<u8>),
    PacketIn(PacketInInfo, Vec<u8>),
    Learn(Learn),
    Traced(u64, Vec<u8>),
    Oam(u32, Vec<u8>),
    Dropped(DropReason),
}

#[derive(Default)]
pub struct Recorder {
    pub events: Vec<Event>,
}

impl<P: Packet> Egress<P> for Recorder {
    fn transmit(&mut self, port: PortNo, queue: Option<QueueId>, packet: P) {
        self.events
            .push(Event::Out(port.raw(), queue.map(|queue| queue.0), bytes(&packet)));
    }

    fn packet_in(&mut self, info: PacketInInfo, packet: P) {
        self.events.push(Event::PacketIn(info, bytes(&packet)));
    }

    fn learn(&mut self, learn: Learn) {
        self.events.push(Event::Learn(learn));
    }

    fn traced(&mut self, trace: u64, _: PortNo, packet: P) {
        self.events.push(Event::Traced(trace, bytes(&packet)));
    }

    fn oam(&mut self, port: PortNo, packet: P) {
        self.events.push(Event::Oam(port.raw(), bytes(&packet)));
    }

    fn dropped(&mut self, reason: DropReason, _: P) {
        self.events.push(Event::Dropped(reason));
    }
}

pub fn bytes<P: Packet>(packet: &P) -> Vec<u8> {
    let mut out = Vec::new();
    packet.copy_to(&mut out, usize::MAX);
    out
}

pub struct Bridge {
    pub control: Control,
    pub active: Forwarding,
    idle: Forwarding,
    pub processor: Processor,
    pub now: Time,
    pub removed: Vec<FlowRemoved>,
    /// The devices of ports that mark packets.
    pub devices: Option<crate::marks::Devices>,
}

impl Bridge {
    /// Returns a bridge with this many ports, numbered from one.
    pub fn new(ports: u32) -> Bridge {
        Self::with(
            ControlConfig {
                tables: 8,
                ..ControlConfig::default()
            },
            ports,
        )
    }

    pub fn with(config: ControlConfig, ports: u32) -> Bridge {
        let mut control = Control::new(config);
        let counters = control.counters();
        let mut bridge = Bridge {
            active: control.forwarding(),
            idle: control.forwarding(),
            control,
            processor: Processor::new(counters),
            now: Time::from_secs(1000),
            removed: Vec::new(),
            devices: None,
        };
        for port in 1..=ports {
            bridge.change(|control, ops| control.set_port(Port::new(PortNo::from_raw(port)), ops));
        }
        bridge
    }

    /// Changes the control side, and publishes the change as the datapath does.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut Control, &mut Vec<Op>) -> R) -> R {
        let mut ops = Vec::new();
        let result = change(&mut self.control, &mut ops);
        for _copy in 0..2 {
            core::mem::swap(&mut self.active, &mut self.idle);
            ops.iter().for_each(|op| self.active.stage(op));
            self.active.settle();
        }
        self.control.published(&mut self.removed);
        result
    }

    pub fn flow_mod(&mut self, request: FlowMod) -> Result<ModOutcome, FlowModError> {
        let now = self.now;
        self.change(|control, ops| control.flow_mod(request, now, ops))
    }

    pub fn group_mod(&mut self, request: &GroupMod) -> Result<usize, GroupModError> {
        let now = self.now;
        self.change(|control, ops| control.group_mod(request, now, ops))
    }

    pub fn add_group(&mut self, id: u32, kind: GroupKind, buckets: Vec<Bucket>) {
        self.group_mod(&GroupMod::Add(group(id, kind, buckets))).unwrap();
    }

    /// Returns `(references, packets of the group, packets of each bucket)`.
    pub fn group_count(&self, id: u32) -> Option<(u32, u64, Vec<u64>)> {
        let mut found = None;
        self.control
            .group_stats(GroupId(id), self.now, |stat: GroupStat<'_>| {
                let buckets = stat.buckets.iter().map(|count| count.packets).collect();
                found = Some((stat.references, stat.count.packets, buckets));
            });
        found
    }

    pub fn meter_mod(&mut self, request: &MeterMod) -> Result<usize, MeterModError> {
        let now = self.now;
        self.change(|control, ops| control.meter_mod(request, now, ops))
    }

    pub fn add_meter(&mut self, id: MeterId, flags: MeterFlags, bands: Vec<Band>) {
        self.meter_mod(&MeterMod::Add(meter(id, flags, bands))).unwrap();
    }

    /// Returns `(flow entries, packets, packets of each band)`.
    pub fn meter_count(&self, id: MeterId) -> Option<(u32, u64, Vec<u64>)> {
        let mut found = None;
        self.control.meter_stats(id, self.now, |stat| {
            let bands = stat.bands.iter().map(|count| count.packets).collect();
            found = Some((stat.flows, stat.count.packets, bands));
        });
        found
    }

    /// Executes flow_mods as a bundle: all take effect or none, and none if the bundle is rolled back at the end.
    pub fn bundle(&mut self, requests: Vec<FlowMod>, is_given_up: bool) -> Result<(), FlowModError> {
        let now = self.now;
        self.change(|control, ops| {
            control.begin(ops);
            let outcome = requests
                .into_iter()
                .try_for_each(|request| control.flow_mod(request, now, ops).map(|_| ()));
            if outcome.is_err() || is_given_up {
                control.roll_back(ops);
            } else {
                control.commit();
            }
            outcome
        })
    }

    pub fn add(&mut self, table: u8, priority: u16, match_: &str, instructions: Instructions) {
        self.flow_mod(add(table, priority, match_, instructions)).unwrap();
    }

    /// Adds an entry that applies actions to all packets that match.
    pub fn apply(&mut self, match_: &str, actions: &[Action]) {
        self.add(0, 10, match_, Instructions::apply(actions));
    }

    pub fn expire(&mut self) {
        let now = self.now;
        self.change(|control, ops| {
            while control.expire(now, 100, ops) == 100 {}
            control.optimize_idle_tables(now, ops);
        });
    }

    /// Returns the events that packets from a port cause.
    pub fn receive(&mut self, port: u32, frames: &[Vec<u8>]) -> Vec<Event> {
        if let Some(mut devices) = self.devices.take() {
            let events = devices.receive(self, port, frames);
            self.devices = Some(devices);
            return events;
        }
        self.receive_from(PortNo::from_raw(port).into(), frames)
    }

    pub fn receive_from(&mut self, origin: Origin, frames: &[Vec<u8>]) -> Vec<Event> {
        let mut recorder = Recorder::default();
        for frames in frames.chunks(BURST) {
            let mut burst: ArrayVec<Frame, BURST> = frames.iter().map(|frame| Frame::new(frame)).collect();
            self.processor
                .process_burst(&self.active, origin, &mut burst, self.now, &mut recorder);
            assert!(burst.is_empty());
        }
        recorder.events
    }

    /// Returns the events of packets that a logical port sends without the tables.
    pub fn forward(&mut self, port: u32, frames: &[Vec<u8>]) -> Vec<Event> {
        let mut recorder = Recorder::default();
        let mut burst: ArrayVec<Frame, BURST> = frames.iter().map(|frame| Frame::new(frame)).collect();
        self.processor.forward_burst(
            &self.active,
            PortNo::from_raw(port),
            &mut burst,
            self.now,
            &mut recorder,
        );
        recorder.events
    }

    /// Returns the events that a packet with metadata causes.
    pub fn receive_frame(&mut self, port: u32, frame: Frame) -> Vec<Event> {
        let mut recorder = Recorder::default();
        let mut burst: ArrayVec<Frame, BURST> = [frame].into_iter().collect();
        let origin = Origin::from(PortNo::from_raw(port));
        self.processor
            .process_burst(&self.active, origin, &mut burst, self.now, &mut recorder);
        recorder.events
    }

    /// Returns the events that one packet causes.
    pub fn one(&mut self, port: u32, frame: &[u8]) -> Vec<Event> {
        self.receive(port, &[frame.to_vec()])
    }

    pub fn packet_out(&mut self, port: PortNo, actions: &[Action], frame: &[u8]) -> Vec<Event> {
        let mut recorder = Recorder::default();
        let packet = Frame::new(frame);
        self.processor
            .packet_out(&self.active, port, actions, packet, self.now, &mut recorder);
        recorder.events
    }

    /// Returns `(cookie, packets, bytes)` of all entries, ordered by cookie.
    pub fn counts(&self) -> Vec<(u64, u64, u64)> {
        let mut counts = Vec::new();
        let all = FlowFilter::all();
        let end = self
            .control
            .flow_stats(&all, Default::default(), usize::MAX, self.now, |stat| {
                counts.push((stat.entry.cookie().0, stat.count.packets, stat.count.bytes));
            });
        assert!(end.is_none());
        counts.sort_unstable();
        counts
    }
}

pub fn add(table: u8, priority: u16, match_: &str, instructions: Instructions) -> FlowMod {
    FlowMod {
        instructions,
        ..FlowMod::new(
            FlowModCommand::Add,
            TableId(table),
            Priority(priority),
            matching(match_),
        )
    }
}

pub fn group(id: u32, kind: GroupKind, buckets: Vec<Bucket>) -> Group {
    Group {
        id: GroupId(id),
        kind,
        buckets: buckets.into(),
    }
}

pub fn meter(id: MeterId, flags: MeterFlags, bands: Vec<Band>) -> Meter {
    Meter {
        id,
        flags,
        bands: bands.into(),
    }
}

pub fn dropping(rate: u32) -> Band {
    Band {
        rate,
        burst_size: 0,
        kind: BandKind::Drop,
    }
}

pub fn to_group(id: u32) -> Action {
    Action::Group(GroupId(id))
}

pub fn matching(text: &str) -> Match {
    if text.is_empty() {
        Match::any()
    } else {
        text.parse().unwrap()
    }
}

pub fn out(port: u32) -> Action {
    Action::output(PortNo::from_raw(port))
}

pub fn set(field: Field, value: u128) -> Action {
    Action::SetField(SetField::new(field, value).unwrap())
}

/// Returns a frame as `ovs-ofctl` would describe it.
pub fn frame(text: &str) -> Vec<u8> {
    let packet: millrace_flow::compose::PacketText = text.parse().unwrap();
    packet.frame().unwrap()
}

/// Returns the sent frames with their ports, ordered by port: frames have an order only within a port.
pub fn sent(events: &[Event]) -> Vec<(u32, Vec<u8>)> {
    let frames = events.iter().filter_map(|event| match event {
        Event::Out(port, _, bytes) => Some((*port, bytes.clone())),
        _ => None,
    });
    let mut frames: Vec<_> = frames.collect();
    frames.sort_by_key(|(port, _)| *port);
    frames
}

/// Returns the ports of sent frames, in order.
pub fn ports(events: &[Event]) -> Vec<u32> {
    sent(events).into_iter().map(|(port, _)| port).collect()
}

/// Returns a bucket that outputs to a port.
pub fn to(port: u32) -> Bucket {
    Bucket::new([out(port)])
}

/// Returns a bucket that outputs to a port, and is live while the port is.
pub fn watching(port: u32) -> Bucket {
    Bucket {
        watch_port: PortNo::from_raw(port),
        ..to(port)
    }
}

/// Returns a bucket that outputs to a port, with a weight.
pub fn weighing(weight: u16, port: u32) -> Bucket {
    Bucket { weight, ..to(port) }
}
