//! The packet pipeline: a bridge with any entries, ports and packets.

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_flow::{
    Action, Bucket, Field, FlowKey, Instructions, Match, MatchBuilder, SetField, WriteMetadata,
};
use millrace_openflow::{Message, decode};
use millrace_pipeline::{
    Band, BandKind, Control, ControlConfig, Cursor, Egress, FlowFilter, FlowFlags, FlowMod, FlowModCommand,
    Forwarding, FragmentMode, Group, GroupKind, GroupMod, Learn, Meter, MeterFlags, MeterMod, Op,
    PacketInInfo, Port, PortConfig, Processor, Standalone, Step, Tunnel, TunnelKey, Tunnels, explain,
};
use millrace_types::{Duration, GroupId, Mac, MeterId, PortNo, Priority, QueueId, TableId, Time};
use millrace_wire::tunnel::TunnelKind;
use millrace_wire::{Depth, EtherType, Frame, Layers};

const TABLES: u8 = 4;
const PORTS: u32 = 4;
/// The underlay of the tunnel, if there is one.
const UNDERLAY: PortNo = PortNo::from_raw(3);

/// Executes a script: the first byte of each step selects the operation.
///
/// Properties: a refused request changes nothing; the workers' copy, changed step by step, treats a packet as a copy
/// that was made at once, as `explain` describes it, and as it treats the packet in two segments; the first lookup
/// finds a matching entry of the highest priority.
pub(crate) fn pipeline(bytes: &[u8]) {
    let mut bridge = Bridge::new();
    let mut script = Script(bytes);
    for _ in 0..64 {
        let Some(step) = script.byte() else { return };
        match step % 8 {
            // Operations that were added later have high numbers, so that older corpus files keep their meaning.
            _ if step >= 0xe0 => bridge.more(step, &mut script),
            0 => bridge.message(script.sized()),
            1..=3 => {
                let port = PortNo::from_raw(1 + u32::from(script.byte().unwrap_or(0)) % (PORTS + 1));
                bridge.packet(port, script.sized());
            }
            4 | 5 => {
                let request = script.flow_mod(&bridge.last);
                bridge.flow_mod(request);
            }
            6 => {
                bridge.now = bridge.now + Duration::from_secs(script.byte().unwrap_or(0).into());
                let now = bridge.now;
                bridge.change(|control, ops| while control.expire(now, 100, ops) == 100 {});
                bridge.change(|control, ops| control.age_fdb(now, 100, ops));
            }
            _ => bridge.port(script.byte().unwrap_or(0), script.byte().unwrap_or(0)),
        }
    }
}

/// Returns the scope of NORMAL that a byte of a script selects.
fn standalone(byte: u8) -> Standalone {
    match byte % 4 {
        0 | 2 => Standalone::Off,
        1 => Standalone::Misses,
        _ => Standalone::All,
    }
}

/// The result of a packet: ports and bytes, in order.
#[derive(Default, PartialEq, Eq, Debug)]
struct Outcome {
    out: Vec<(PortNo, Option<QueueId>, Vec<u8>)>,
    packet_ins: Vec<(PacketInInfo, Vec<u8>)>,
    learned: Vec<Learn>,
}

impl Egress<Frame> for Outcome {
    fn transmit(&mut self, port: PortNo, queue: Option<QueueId>, packet: Frame) {
        self.out.push((port, queue, packet.bytes().to_vec()));
    }

    fn packet_in(&mut self, info: PacketInInfo, packet: Frame) {
        self.packet_ins.push((info, packet.bytes().to_vec()));
    }

    fn learn(&mut self, learn: Learn) {
        self.learned.push(learn);
    }

    fn traced(&mut self, _: u64, _: PortNo, _: Frame) {}
}

struct Bridge {
    control: Control,
    active: Forwarding,
    idle: Forwarding,
    processor: Processor,
    now: Time,
    /// The previous packet, whose fields entries may match.
    last: FlowKey,
    has_tunnels: bool,
    drops_fragments: bool,
}

impl Bridge {
    fn new() -> Bridge {
        let mut control = Control::new(ControlConfig {
            tables: TABLES,
            max_entries: 40,
            ..ControlConfig::default()
        });
        let counters = control.counters();
        let mut bridge = Bridge {
            active: control.forwarding(),
            idle: control.forwarding(),
            control,
            processor: Processor::new(counters),
            now: Time::from_secs(1000),
            last: FlowKey::default(),
            has_tunnels: false,
            drops_fragments: false,
        };
        for port in 1..=PORTS {
            bridge.change(|control, ops| control.set_port(Port::new(PortNo::from_raw(port)), ops));
        }
        bridge
    }

    /// Changes the control side, and publishes the changes as the datapath does.
    fn change<R>(&mut self, change: impl FnOnce(&mut Control, &mut Vec<Op>) -> R) -> (R, usize) {
        let mut ops = Vec::new();
        let result = change(&mut self.control, &mut ops);
        ops.iter().for_each(|op| self.idle.apply(op));
        core::mem::swap(&mut self.active, &mut self.idle);
        ops.iter().for_each(|op| self.idle.apply(op));
        self.control.published(&mut Vec::new());
        assert_eq!(self.control.unpublished_len(), 0);
        (result, ops.len())
    }

    fn flow_mod(&mut self, request: FlowMod) {
        let (now, before) = (self.now, self.control.entry_len());
        let (outcome, ops_len) = self.change(|control, ops| control.flow_mod(request, now, ops));
        match outcome {
            Ok(outcome) => {
                let after = before + outcome.added - outcome.removed;
                assert_eq!(self.control.entry_len(), after);
            }
            Err(_) => assert_eq!((self.control.entry_len(), ops_len), (before, 0)),
        }
    }

    /// Changes groups, meters, tunnels or the fragment mode.
    fn more(&mut self, step: u8, script: &mut Script<'_>) {
        let now = self.now;
        match step % 8 {
            0..=2 => {
                let id = GroupId(u32::from(script.byte().unwrap_or(0)) % 4);
                let request = match script.byte().unwrap_or(0) {
                    250.. => GroupMod::Delete(id),
                    how @ 200.. => GroupMod::Modify(script.group(id, how)),
                    how => GroupMod::Add(script.group(id, how)),
                };
                let (outcome, ops) = self.change(|control, ops| control.group_mod(&request, now, ops));
                assert!(outcome.is_ok() || ops == 0, "a refused request changes nothing");
            }
            3 | 4 => {
                let how = script.byte().unwrap_or(0);
                let id = MeterId(1 + u32::from(how) % 3);
                let meter = Meter {
                    id,
                    flags: MeterFlags(u16::from(how >> 4)),
                    // The rate is so high that one packet more or less makes no difference.
                    bands: [Band {
                        rate: u32::MAX,
                        burst_size: u32::MAX,
                        kind: BandKind::Drop,
                    }]
                    .into(),
                };
                let request = match how {
                    250.. => MeterMod::Delete(id),
                    200.. => MeterMod::Modify(meter),
                    _ => MeterMod::Add(meter),
                };
                let (outcome, ops) = self.change(|control, ops| control.meter_mod(&request, now, ops));
                assert!(outcome.is_ok() || ops == 0, "a refused request changes nothing");
            }
            5 => {
                // Port 4 becomes a tunnel over port 3, or is removed.
                let how = script.byte().unwrap_or(0);
                let kind = TunnelKind::ALL[usize::from(how % 4)];
                let tunnel = Tunnel {
                    port: PortNo::from_raw(PORTS),
                    kind,
                    local: [192, 0, 2, 1].into(),
                    remote: [192, 0, 2, 2].into(),
                    key: [TunnelKey::Flow, TunnelKey::Fixed(7), TunnelKey::None][usize::from(how >> 2) % 3],
                    underlay: UNDERLAY,
                    local_mac: Mac([2, 0, 0, 0, 0, 1]),
                    next_hop: (how & 0x10 != 0).then_some(Mac([2, 0, 0, 0, 0, 2])),
                    udp_port: kind.udp_port().unwrap_or(0),
                    ttl: 64,
                    dscp: (how & 0x20 != 0).then_some(9),
                    checksum: how & 0x40 != 0,
                    mtu: 1500,
                };
                let tunnels = (how & 0x80 != 0).then(|| (tunnel, Default::default()));
                self.has_tunnels = tunnels.is_some();
                self.change(|control, ops| control.set_tunnels(Tunnels::new(tunnels), ops));
            }
            6 => {
                // With reassembly, the same fragment twice has another result.
                let drops = script.byte().unwrap_or(0) & 1 != 0;
                self.drops_fragments = drops;
                let mode = if drops {
                    FragmentMode::Drop
                } else {
                    FragmentMode::Normal
                };
                self.change(|control, ops| control.set_fragments(mode, ops));
            }
            _ => {
                let fields = (0..script.byte().unwrap_or(0) % 4)
                    .filter_map(|_| Field::from_index(script.byte().unwrap_or(0) % Field::LEN as u8))
                    .collect();
                self.change(|control, ops| control.set_select_fields(fields, ops));
            }
        }
    }

    /// Executes a flow_mod or a packet_out of a controller.
    fn message(&mut self, bytes: &[u8]) {
        match decode(bytes) {
            Ok((_, Message::FlowMod(asked))) => self.flow_mod(FlowMod {
                command: COMMANDS[asked.command as usize],
                table: asked.table,
                priority: asked.priority,
                cookie: asked.cookie,
                cookie_mask: asked.cookie_mask,
                idle_timeout: asked.idle_timeout,
                hard_timeout: asked.hard_timeout,
                out_port: asked.out_port,
                out_group: asked.out_group,
                flags: FlowFlags(asked.flags.raw()),
                match_: asked.match_,
                instructions: asked.instructions,
            }),
            Ok((_, Message::PacketOut(asked))) if self.control.check_packet_out(&asked.actions).is_ok() => {
                let packet = Frame::new(&asked.data);
                let mut outcome = Outcome::default();
                self.processor.packet_out(
                    &self.active,
                    asked.in_port,
                    &asked.actions,
                    packet,
                    self.now,
                    &mut outcome,
                );
                self.learn(outcome);
            }
            _ => {}
        }
    }

    fn packet(&mut self, port: PortNo, bytes: &[u8]) {
        let layers = Layers::parse(bytes, Depth::All);
        self.last = FlowKey::default();
        self.last.set_field(Field::InPort, port.raw().into());
        self.last.set_field(Field::InPhyPort, port.raw().into());
        self.last.extract(bytes, &layers);

        let told = explain(&self.active, port, bytes, self.now);
        let rebuilt = self.control.forwarding();
        let fresh = self.process(Some(&rebuilt), port, Frame::new(bytes));
        let outcome = self.process(None, port, Frame::new(bytes));
        assert_eq!(outcome, fresh, "a copy made at once");
        // The headers are in the first segment and the rest in others, as in the long packets of a driver.
        let head_size = layers.l4_offset().max(layers.l3_offset()).max(14) + 128;
        if head_size < bytes.len() && !self.has_tunnels {
            let cut = self.process(None, port, Frame::segmented(bytes, head_size));
            assert_eq!(outcome.out, cut.out, "two segments");
        }
        // Order is kept at each port; there is none between ports.
        let mut explained: Vec<_> = told.steps.iter().filter_map(sent).collect();
        explained.sort_by_key(|(port, ..)| *port);
        let mut sent: Vec<_> = outcome
            .out
            .iter()
            .map(|(port, queue, bytes)| (*port, *queue, bytes))
            .collect();
        sent.sort_by_key(|(port, ..)| *port);
        assert_eq!(explained, sent, "explained");
        // The packet that is looked up may be the payload of a tunnel.
        if !(self.has_tunnels && port == UNDERLAY) {
            self.check_lookup(&told.steps);
        }
        // The text form is also printed.
        told.steps.iter().for_each(|step| drop(step.to_string()));
        self.learn(outcome);
    }

    fn process(&mut self, fwd: Option<&Forwarding>, port: PortNo, packet: Frame) -> Outcome {
        let mut outcome = Outcome::default();
        let mut burst: ArrayVec<Frame, BURST> = ArrayVec::new();
        burst.push(packet);
        let fwd = fwd.unwrap_or(&self.active);
        self.processor
            .process_burst(fwd, port, &mut burst, self.now, &mut outcome);
        assert!(burst.is_empty());
        outcome
    }

    /// Compares the first lookup with a linear scan.
    fn check_lookup(&self, steps: &[Step]) {
        let found = match steps.first() {
            Some(Step::Matched { priority, .. }) => Some(*priority),
            Some(Step::Missed { .. }) => None,
            _ => return,
        };
        let filter = FlowFilter {
            table: TableId(0),
            ..FlowFilter::all()
        };
        let mut best: Option<Priority> = None;
        self.control
            .flow_stats(&filter, Cursor::default(), usize::MAX, self.now, |stat| {
                let rule = stat.entry.match_().rule(stat.entry.priority());
                if rule.matches(&self.last) {
                    best = best.max(Some(stat.entry.priority()));
                }
            });
        assert_eq!(found, best);
    }

    fn learn(&mut self, outcome: Outcome) {
        let now = self.now;
        for learn in outcome.learned {
            self.change(|control, ops| control.learn(learn, now, ops));
        }
    }

    fn port(&mut self, number: u8, what: u8) {
        let number = PortNo::from_raw(1 + u32::from(number) % PORTS);
        match what % 8 {
            0 => drop(self.change(|control, ops| control.remove_port(number, ops))),
            1 => drop(self.change(|control, ops| control.set_port(Port::new(number), ops))),
            2 => drop(self.change(|control, ops| control.set_standalone(standalone(what >> 3), ops))),
            3 => drop(self.change(|control, ops| control.set_invalid_ttl_to_controller(what & 8 != 0, ops))),
            4 => drop(self.change(|control, ops| control.forget_fdb(None, None, ops))),
            _ => {
                let config = PortConfig(1 << ((what >> 4) % 7));
                let _ = self.change(|control, ops| control.port_mod(number, config, config, ops).is_ok());
            }
        }
    }
}

fn sent(step: &Step) -> Option<(PortNo, Option<QueueId>, &Vec<u8>)> {
    match step {
        Step::Output { port, queue, frame } => Some((*port, *queue, frame)),
        _ => None,
    }
}

const COMMANDS: [FlowModCommand; 5] = [
    FlowModCommand::Add,
    FlowModCommand::Modify,
    FlowModCommand::ModifyStrict,
    FlowModCommand::Delete,
    FlowModCommand::DeleteStrict,
];

/// Reads a fuzzer's bytes as numbers and lists; zeros when they are used up.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte().unwrap_or(0), self.byte().unwrap_or(0)])
    }

    /// Returns a list whose length is in the next two bytes.
    fn sized(&mut self) -> &'a [u8] {
        let size = usize::from(self.word()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(size);
        self.0 = rest;
        bytes
    }

    /// Returns a request that is likely to be accepted and to match.
    fn flow_mod(&mut self, last: &FlowKey) -> FlowMod {
        let [command, table, priority, flags] = [(); 4].map(|()| self.byte().unwrap_or(0));
        // All other commands need added entries.
        let command = COMMANDS[usize::from(command.saturating_sub(200)) % 5];
        FlowMod {
            idle_timeout: u16::from(flags >> 4) & 3,
            hard_timeout: u16::from(flags >> 6),
            flags: FlowFlags(u16::from(flags) & 7),
            instructions: self.instructions(),
            ..FlowMod::new(
                command,
                TableId(table % (TABLES + 1)),
                Priority(u16::from(priority) % 8),
                self.matching(last),
            )
        }
    }

    /// Returns fields of the previous packet, as selected by a mask; contradictory ones are left out.
    fn matching(&mut self, last: &FlowKey) -> Match {
        let mut builder = MatchBuilder::default();
        for _ in 0..self.byte().unwrap_or(0) % 6 {
            let [field, how] = [(); 2].map(|()| self.byte().unwrap_or(0));
            let Some(field) = Field::from_index(field % Field::LEN as u8) else {
                continue;
            };
            let value = match how & 1 {
                0 => field.value_in(last),
                _ => u128::from(self.word()) & field.max_value(),
            };
            let mask = (how & 2 != 0).then(|| field.max_value() << (how >> 2) & field.max_value());
            let value = mask.map_or(value, |mask| value & mask);
            let _ = builder.push(field, value, mask);
        }
        builder.finish().unwrap_or_else(|_| Match::any())
    }

    fn group(&mut self, id: GroupId, how: u8) -> Group {
        let buckets = (0..self.byte().unwrap_or(0) % 5).map(|_| {
            let [weight, watch] = [(); 2].map(|()| self.byte().unwrap_or(0));
            let mut bucket = Bucket::new(self.actions());
            bucket.weight = if how % 4 == 1 { u16::from(weight) } else { 0 };
            if how % 4 == 3 || watch & 0x80 != 0 {
                bucket.watch_port = PortNo::from_raw(1 + u32::from(watch) % (PORTS + 1));
            }
            if watch & 0x40 != 0 {
                bucket.watch_group = GroupId(u32::from(watch) % 4);
            }
            bucket
        });
        Group {
            id,
            kind: [
                GroupKind::All,
                GroupKind::Select,
                GroupKind::Indirect,
                GroupKind::FastFailover,
            ][usize::from(how % 4)],
            buckets: buckets.collect(),
        }
    }

    fn instructions(&mut self) -> Instructions {
        let how = self.byte().unwrap_or(0);
        Instructions {
            apply_actions: (how & 1 != 0).then(|| self.actions()),
            clear_actions: how & 2 != 0,
            write_actions: (how & 4 != 0).then(|| self.actions()),
            write_metadata: (how & 8 != 0).then(|| WriteMetadata {
                value: self.word().into(),
                mask: 0xffff,
            }),
            goto_table: (how & 16 != 0).then_some(TableId(how >> 5)),
            meter: (how & 0xe0 == 0xe0).then_some(MeterId(2)),
        }
    }

    fn actions(&mut self) -> Box<[Action]> {
        let len = self.byte().unwrap_or(0) % 8;
        (0..len).filter_map(|_| self.action()).collect()
    }

    fn action(&mut self) -> Option<Action> {
        let [kind, value] = [(); 2].map(|()| self.byte().unwrap_or(0));
        Some(match kind % 20 {
            0..=3 => Action::output(PortNo::from_raw(1 + u32::from(value) % (PORTS + 1))),
            4 => Action::output(PortNo::from_raw(0xffff_fff0 + u32::from(value) % 16)),
            5 => Action::SetQueue(QueueId(value.into())),
            6 => Action::SetMplsTtl(value),
            7 => Action::DecMplsTtl,
            8 => Action::SetNwTtl(value),
            9 => Action::DecNwTtl,
            10 => Action::CopyTtlOut,
            11 => Action::CopyTtlIn,
            12 => Action::PushVlan([EtherType(0x8100), EtherType(0x88a8)][usize::from(value % 2)]),
            13 => Action::PopVlan,
            14 => Action::PushMpls([EtherType(0x8847), EtherType(0x8848)][usize::from(value % 2)]),
            15 => Action::PopMpls(
                [EtherType(0x0800), EtherType(0x86dd), EtherType(0x8847)][usize::from(value % 3)],
            ),
            16 => Action::PushPbb(EtherType(0x88e7)),
            17 => Action::PopPbb,
            18 if value >= 0xf0 => Action::Group(GroupId(u32::from(value) % 4)),
            _ => {
                let field = Field::from_index(value % Field::LEN as u8)?;
                Action::SetField(SetField::new(field, u128::from(self.word()) & field.max_value()).ok()?)
            }
        })
    }
}
