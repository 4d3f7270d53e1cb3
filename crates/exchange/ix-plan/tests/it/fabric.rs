//! The switches of an exchange in memory: each is a pipeline, and trunks connect them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_ix_model::{Exchange, SwitchId, TrunkKind};
use millrace_ix_plan::{Entry, EntryId, GroupKind, Modification, Plan, RateUnit, difference};
use millrace_pipeline::{
    Band, BandKind, Control, ControlConfig, DropReason, Egress, FlowMod, FlowModCommand, Forwarding, Group,
    GroupMod, Learn, Meter, MeterFlags, MeterMod, Op, Origin, PacketInInfo, Port, Processor, Tunnel,
    TunnelKey, Tunnels,
};
use millrace_types::{Mac, PortNo, QueueId, Time, TunnelKind};
use millrace_wire::{Frame, Packet};

/// Returns the port whose network carries the VXLAN packets of trunk port `port`.
const fn underlay(port: u32) -> u32 {
    port + 1000
}

/// A frame that left a switch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Delivered {
    pub(crate) switch: SwitchId,
    pub(crate) port: u32,
    pub(crate) frame: Vec<u8>,
}

struct Switch {
    control: Control,
    active: Forwarding,
    idle: Forwarding,
    processor: Processor,
    state: millrace_ix_plan::SwitchState,
}

/// The frames that a processor sends to ports and to the controller.
#[derive(Default)]
struct Recorder {
    sent: Vec<(u32, Vec<u8>)>,
    packet_ins: Vec<Vec<u8>>,
}

fn bytes<P: Packet>(packet: &P) -> Vec<u8> {
    let mut out = Vec::new();
    packet.copy_to(&mut out, usize::MAX);
    out
}

impl<P: Packet> Egress<P> for Recorder {
    fn transmit(&mut self, port: PortNo, _: Option<QueueId>, packet: P) {
        self.sent.push((port.raw(), bytes(&packet)));
    }

    fn packet_in(&mut self, _: PacketInInfo, packet: P) {
        self.packet_ins.push(bytes(&packet));
    }

    fn learn(&mut self, _: Learn) {}

    fn traced(&mut self, _: u64, _: PortNo, _: P) {}

    fn dropped(&mut self, _: DropReason, _: P) {}
}

impl Switch {
    fn new() -> Switch {
        let mut control = Control::new(ControlConfig {
            tables: 8,
            match_extensions: false,
            ..ControlConfig::default()
        });
        Switch {
            active: control.forwarding(),
            idle: control.forwarding(),
            processor: Processor::new(control.counters()),
            control,
            state: Default::default(),
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut Control, &mut Vec<Op>)) {
        let mut ops = Vec::new();
        change(&mut self.control, &mut ops);
        ops.iter().for_each(|op| self.idle.apply(op));
        core::mem::swap(&mut self.active, &mut self.idle);
        ops.iter().for_each(|op| self.idle.apply(op));
        self.control.published(&mut Vec::new());
    }

    /// Applies modifications. The pipeline must accept each of them.
    fn modify(&mut self, modifications: &[Modification], now: Time) {
        self.change(|control, ops| {
            for Modification { key: id, from, to } in modifications {
                match (id, to) {
                    (EntryId::Flow(id), to) => {
                        let mut request = FlowMod::new(
                            FlowModCommand::Add,
                            id.table,
                            id.priority,
                            id.matching.to_match().expect("a valid match"),
                        );
                        match to {
                            Some(Entry::Flow(flow)) => {
                                request.instructions = flow.instructions.clone();
                                request.cookie = flow.cookie;
                            }
                            None => request.command = FlowModCommand::DeleteStrict,
                            Some(other) => panic!("{id:?} is no {other:?}"),
                        }
                        control
                            .flow_mod(request, now, ops)
                            .unwrap_or_else(|error| panic!("{id:?} {to:?}: {error}"));
                    }
                    (EntryId::Group(number), Some(Entry::Group(group))) => {
                        let group = Group {
                            id: *number,
                            kind: match group.kind {
                                GroupKind::All => millrace_pipeline::GroupKind::All,
                                GroupKind::Select => millrace_pipeline::GroupKind::Select,
                                GroupKind::Indirect => millrace_pipeline::GroupKind::Indirect,
                                GroupKind::FastFailover => millrace_pipeline::GroupKind::FastFailover,
                            },
                            buckets: group.buckets.clone().into(),
                        };
                        let request = if from.is_some() {
                            GroupMod::Modify(group)
                        } else {
                            GroupMod::Add(group)
                        };
                        control
                            .group_mod(&request, now, ops)
                            .unwrap_or_else(|error| panic!("{request:?}: {error}"));
                    }
                    (EntryId::Group(number), _) => {
                        let flows = control.group_mod(&GroupMod::Delete(*number), now, ops).unwrap();
                        assert_eq!(flows, 0, "{number} is deleted while entries use it");
                    }
                    (EntryId::Meter(number), Some(Entry::Meter(meter))) => {
                        let unit = match meter.unit {
                            RateUnit::Kbps => MeterFlags::KBPS,
                            RateUnit::Pktps => MeterFlags::PKTPS,
                        };
                        let meter = Meter {
                            id: *number,
                            flags: MeterFlags(unit.0 | MeterFlags::BURST.0),
                            bands: Box::new([Band {
                                rate: meter.rate,
                                burst_size: meter.burst,
                                kind: BandKind::Drop,
                            }]),
                        };
                        let request = if from.is_some() {
                            MeterMod::Modify(meter)
                        } else {
                            MeterMod::Add(meter)
                        };
                        control
                            .meter_mod(&request, now, ops)
                            .unwrap_or_else(|error| panic!("{request:?}: {error}"));
                    }
                    (EntryId::Meter(number), _) => {
                        let flows = control.meter_mod(&MeterMod::Delete(*number), now, ops).unwrap();
                        assert_eq!(flows, 0, "{number} is deleted while entries use it");
                    }
                }
            }
        });
        for Modification { key: id, from, to } in modifications {
            assert_eq!(
                self.state.get(id),
                from.as_ref(),
                "{id:?}: the modification is for another state"
            );
            match to {
                Some(entry) => drop(self.state.insert(id.clone(), entry.clone())),
                None => drop(self.state.remove(id)),
            }
        }
    }
}

/// The switches, and the trunk ports that join them.
pub(crate) struct Fabric {
    switches: BTreeMap<SwitchId, Switch>,
    /// The far end of each trunk port: the switch and port at which its frames arrive.
    wires: BTreeMap<(SwitchId, u32), (SwitchId, u32)>,
    pub(crate) now: Time,
    /// The number of frames between switches since a test has set it to zero.
    pub(crate) on_trunks: usize,
    pub(crate) packet_ins: usize,
    /// The frame that the controller got last.
    pub(crate) last_packet_in: Vec<u8>,
}

impl Fabric {
    /// Returns empty switches with the ports and trunks of an exchange.
    pub(crate) fn new(exchange: &Exchange) -> Fabric {
        let mut fabric = Fabric {
            switches: BTreeMap::new(),
            wires: BTreeMap::new(),
            now: Time::from_secs(1000),
            on_trunks: 0,
            packet_ins: 0,
            last_packet_in: Vec::new(),
        };
        for trunk in exchange.trunks.values() {
            let [one, two] = trunk.ends;
            let number = |port: PortNo| match trunk.kind {
                TrunkKind::Vxlan => underlay(port.raw()),
                TrunkKind::STag => port.raw(),
            };
            let (one, two) = ((one.switch, number(one.port)), (two.switch, number(two.port)));
            fabric.wires.extend([(one, two), (two, one)]);
        }
        for (id, found) in &exchange.switches {
            let mut switch = Switch::new();
            let mut tunnels = Vec::new();
            for (at, trunk) in (1u8..).zip(exchange.trunks.values()) {
                let Some(side) = trunk.ends.iter().position(|end| end.switch == *id) else {
                    continue;
                };
                if trunk.kind == TrunkKind::STag {
                    continue;
                }
                let (local, remote) = (side as u8 + 1, 2 - side as u8);
                let port = trunk.ends[side].port;
                tunnels.push(Tunnel {
                    port,
                    kind: TunnelKind::Vxlan,
                    local: [192, 0, at, local].into(),
                    remote: [192, 0, at, remote].into(),
                    key: TunnelKey::Flow,
                    underlay: PortNo::from_raw(underlay(port.raw())),
                    local_mac: Mac([2, 0, 0, at, 1, local]),
                    next_hop: Some(Mac([2, 0, 0, at, 1, remote])),
                    udp_port: 4789,
                    ttl: 64,
                    dscp: Some(0),
                    checksum: false,
                    mtu: 9000,
                });
            }
            let underlays = tunnels.iter().map(|tunnel| tunnel.underlay);
            let numbers: Vec<_> = found
                .ports
                .iter()
                .map(|port| port.number)
                .chain(underlays)
                .collect();
            switch.change(|control, ops| {
                for number in numbers {
                    control.set_port(Port::new(number), ops);
                }
                control.set_tunnels(
                    Tunnels::new(tunnels.into_iter().map(|tunnel| (tunnel, Arc::default()))),
                    ops,
                );
            });
            fabric.switches.insert(*id, switch);
        }
        fabric
    }

    /// Applies all modifications that make the switches equal to a plan.
    pub(crate) fn install(&mut self, plan: &Plan) {
        let none = Default::default();
        for (id, switch) in &mut self.switches {
            let want = plan.switches.get(id).unwrap_or(&none);
            let modifications = difference(&switch.state, want);
            switch.modify(&modifications, self.now);
            assert_eq!(&switch.state, want);
        }
    }

    /// Applies the modifications of a phase at one switch.
    pub(crate) fn modify(&mut self, switch: SwitchId, modifications: &[Modification]) {
        let now = self.now;
        self.switches.get_mut(&switch).unwrap().modify(modifications, now);
    }

    /// Returns the content of a switch.
    pub(crate) fn state(&self, switch: SwitchId) -> &millrace_ix_plan::SwitchState {
        &self.switches[&switch].state
    }

    /// Returns the frames that a switch sends after `frame` arrives, each with its port.
    pub(crate) fn raw_step(&mut self, switch: SwitchId, port: u32, frame: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut recorder = Recorder::default();
        let found = self.switches.get_mut(&switch).unwrap();
        let mut burst: ArrayVec<Frame, BURST> = [Frame::new(frame)].into_iter().collect();
        let origin = Origin::from(PortNo::from_raw(port));
        found
            .processor
            .process_burst(&found.active, origin, &mut burst, self.now, &mut recorder);
        self.packet_ins += recorder.packet_ins.len();
        self.last_packet_in = recorder.packet_ins.pop().unwrap_or_default();
        recorder.sent
    }

    /// Returns the sent frames that arrive at another switch.
    pub(crate) fn across(&self, switch: SwitchId, sent: &[(u32, Vec<u8>)]) -> Vec<Delivered> {
        let wires = sent.iter().filter_map(|(port, frame)| {
            let (switch, port) = *self.wires.get(&(switch, *port))?;
            Some(Delivered {
                switch,
                port,
                frame: frame.clone(),
            })
        });
        wires.collect()
    }

    /// Returns the frames between switches that a frame from a member causes, and those that left at members.
    pub(crate) fn step(
        &mut self,
        switch: SwitchId,
        port: u32,
        frame: &[u8],
    ) -> (Vec<Delivered>, Vec<Delivered>) {
        let sent = self.raw_step(switch, port, frame);
        let between = self.across(switch, &sent);
        let members = sent
            .into_iter()
            .filter(|(port, _)| !self.wires.contains_key(&(switch, *port)));
        let delivered = members
            .map(|(port, frame)| Delivered { switch, port, frame })
            .collect();
        (between, delivered)
    }

    /// Returns the frames that leave at members after `frame` arrives.
    pub(crate) fn send(&mut self, switch: SwitchId, port: u32, frame: &[u8]) -> Vec<Delivered> {
        // Frames are ten milliseconds apart, so that no meter of these tests drops any.
        self.now = self.now + core::time::Duration::from_millis(10);
        self.send_now(switch, port, frame)
    }

    /// Does the same as [`Fabric::send`], at the time of the previous frame.
    pub(crate) fn send_now(&mut self, switch: SwitchId, port: u32, frame: &[u8]) -> Vec<Delivered> {
        let (mut waiting, mut delivered) = self.step(switch, port, frame);
        let mut hops = 0;
        while let Some(next) = waiting.pop() {
            hops += 1;
            assert!(hops < 100, "a frame circles");
            self.on_trunks += 1;
            let (between, out) = self.step(next.switch, next.port, &next.frame);
            assert!(
                between.len() <= 1 && (between.is_empty() || out.is_empty()),
                "a frame that came by a trunk leaves by a trunk at a transit switch only, and once"
            );
            waiting.extend(between);
            delivered.extend(out);
        }
        delivered.sort();
        delivered
    }
}
