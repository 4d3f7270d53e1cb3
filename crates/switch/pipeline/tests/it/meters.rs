//! Meters: their accuracy in simulated time, and the effects of requests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::harness::{Bridge, Event, Recorder, add, dropping, frame, meter, out, ports, sent, to_group};
use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_flow::{Action, Bucket, Instructions};
use millrace_pipeline::{
    Band, BandKind, DropReason, ErrorCode, FlowFlags, FlowMod, FlowModCommand, Group, GroupKind, GroupMod,
    Meter, MeterFlags, MeterMod, Processor, RemovedReason, Step, explain,
};
use millrace_types::{Duration, GroupId, MeterId, PortNo, TableId, Time};
use millrace_wire::Frame;

const KBPS: MeterFlags = MeterFlags::KBPS;
const PKTPS: MeterFlags = MeterFlags::PKTPS;
const ONE: MeterId = MeterId(1);

fn through(id: MeterId, actions: &[Action]) -> Instructions {
    Instructions {
        meter: Some(id),
        ..Instructions::apply(actions)
    }
}

fn remarking(rate: u32, prec_level: u8) -> Band {
    Band {
        kind: BandKind::DscpRemark { prec_level },
        ..dropping(rate)
    }
}

/// Returns the packets per second that pass a meter if packets arrive at `load` times its rate, in bursts to
/// `workers` workers in turn.
fn measured(flags: MeterFlags, rate: u32, size: usize, workers: usize, load: f64) -> f64 {
    const SECONDS: u64 = 5;
    // The default burst, 200 ms of the rate, is used up: at 1.3 times the rate after 667 ms.
    const WARM_UP: Duration = Duration::from_secs(1);
    let mut bridge = Bridge::new(2);
    bridge.add_meter(ONE, flags, vec![dropping(rate)]);
    bridge.add(0, 1, "", through(ONE, &[out(2)]));
    let mut processors: Vec<Processor> = (0..workers)
        .map(|_| Processor::new(bridge.control.counters()))
        .collect();
    let packet = frame(&format!("udp,size={size}"));
    let packets_a_second = load * expected(flags, rate, size);
    // A burst holds the packets of ten milliseconds: one to eight.
    let together = ((packets_a_second / 100.0) as u64).clamp(1, 8);
    let gap = Duration::from_secs_f64(together as f64 / packets_a_second);
    let (start, mut now) = (bridge.now, bridge.now);
    let mut passed = 0u64;
    let mut turn = 0;
    while now.since(start) < WARM_UP + Duration::from_secs(SECONDS) {
        let mut recorder = Recorder::default();
        let mut burst: ArrayVec<Frame, BURST> = (0..together).map(|_| Frame::new(&packet)).collect();
        // The clock of the second worker is a microsecond behind.
        let clock = now - Duration::from_micros((turn % workers) as u64);
        processors[turn % workers].process_burst(
            &bridge.active,
            PortNo::from_raw(1),
            &mut burst,
            clock,
            &mut recorder,
        );
        if now.since(start) >= WARM_UP {
            passed += recorder
                .events
                .iter()
                .filter(|event| matches!(event, Event::Out(..)))
                .count() as u64;
        }
        turn += 1;
        now = now + gap;
    }
    passed as f64 / SECONDS as f64
}

/// Returns the packets per second that a meter of this rate lets pass.
fn expected(flags: MeterFlags, rate: u32, size: usize) -> f64 {
    if flags.contains(PKTPS) {
        f64::from(rate)
    } else {
        f64::from(rate) * 125.0 / size as f64
    }
}

#[test]
fn a_meter_is_exact_to_one_per_cent_over_five_seconds() {
    for (flags, rate) in [
        (KBPS, 1_000),
        (KBPS, 10_000),
        (KBPS, 40_000),
        (PKTPS, 1000),
        (PKTPS, 40_000),
    ] {
        for size in [64, 1500] {
            for workers in [1, 2] {
                for load in [1.3, 3.0] {
                    let exact = expected(flags, rate, size);
                    let got = measured(flags, rate, size, workers, load);
                    let error = got / exact - 1.0;
                    assert!(
                        error.abs() < 0.01,
                        "{flags:?} {rate}, {size} bytes, {workers} workers, load {load}: {got} instead of {exact}"
                    );
                }
            }
        }
    }
}

#[test]
fn below_its_rate_a_meter_lets_everything_pass() {
    for (flags, rate) in [(KBPS, 10_000), (PKTPS, 1000)] {
        let got = measured(flags, rate, 1500, 2, 0.9);
        assert!(
            (got / (0.9 * expected(flags, rate, 1500)) - 1.0).abs() < 0.01,
            "{got}"
        );
    }
}

/// Sends `len` packets to the bridge at once, and returns those that leave.
fn at_once(bridge: &mut Bridge, len: usize, text: &str) -> Vec<Vec<u8>> {
    let frames = vec![frame(text); len];
    sent(&bridge.receive(1, &frames))
        .into_iter()
        .map(|(_, bytes)| bytes)
        .collect()
}

#[test]
fn of_several_bands_that_are_exceeded_the_one_with_the_highest_rate_applies() {
    let mut bridge = Bridge::new(2);
    let burst = |burst_size, band| Band { burst_size, ..band };
    let bands = vec![
        burst(30, dropping(300)),
        burst(10, remarking(100, 1)),
        burst(20, remarking(200, 2)),
    ];
    bridge.add_meter(ONE, MeterFlags(PKTPS.0 | MeterFlags::BURST.0), bands);
    bridge.add(0, 1, "", through(ONE, &[out(2)]));
    // AF11 is DSCP 10, which is 40 in the type-of-service byte.
    for text in ["tcp,nw_tos=40", "tcp6,nw_tos=40"] {
        bridge.now = bridge.now + Duration::from_secs(9);
        let dscp = |bytes: &Vec<u8>| match bytes[14] >> 4 {
            4 => bytes[15] >> 2,
            _ => (bytes[14] << 4 | bytes[15] >> 4) >> 2,
        };
        let left: Vec<u8> = at_once(&mut bridge, 40, text).iter().map(dscp).collect();
        let expected = [vec![10; 11], vec![12; 10], vec![14; 10]].concat();
        assert_eq!(left, expected, "{text}");
    }
    assert_eq!(bridge.meter_count(ONE), Some((1, 80, vec![18, 20, 20])));
    // Packets without DSCP, and of another class, are not changed.
    for text in ["arp", "udp,nw_tos=0", "udp,nw_tos=184"] {
        bridge.now = bridge.now + Duration::from_secs(9);
        assert!(
            at_once(&mut bridge, 31, text)
                .iter()
                .all(|bytes| *bytes == frame(text)),
            "{text}"
        );
    }
}

#[test]
fn the_checksum_is_right_after_remarking_and_later_tables_see_the_mark() {
    let mut bridge = Bridge::new(4);
    bridge.add_meter(ONE, PKTPS, vec![remarking(1, 1)]);
    let metered = Instructions {
        meter: Some(ONE),
        ..Instructions::goto(TableId(1))
    };
    bridge.add(0, 1, "", metered);
    bridge.add(1, 9, "tcp,ip_dscp=10", Instructions::apply([out(2)]));
    bridge.add(1, 9, "tcp,ip_dscp=12", Instructions::apply([out(3)]));
    for _ in 0..100 {
        // Workers would cache the traversal after this many packets if they cached metered traversals.
        bridge.now = bridge.now + Duration::from_secs(5);
        let events = bridge.receive(1, &vec![frame("tcp,nw_tos=40"); 3]);
        let left = ports(&events);
        assert!(
            left.iter().filter(|port| **port == 2).count() == 1 && left.len() == 3,
            "{left:?}"
        );
        let marked = sent(&events).into_iter().find(|(port, _)| *port == 3).unwrap().1;
        let sum: u32 = marked[14..34]
            .chunks(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
}

#[test]
fn packet_ins_pass_the_meter_of_the_controller() {
    let mut bridge = Bridge::new(2);
    bridge.apply("", &[Action::output(PortNo::CONTROLLER)]);
    bridge.add_meter(MeterId::CONTROLLER, PKTPS, vec![dropping(10)]);
    bridge.add_meter(MeterId::SLOWPATH, PKTPS, vec![dropping(1)]);
    let events = bridge.receive(1, &vec![frame("tcp"); 40]);
    let packet_ins = events
        .iter()
        .filter(|event| matches!(event, Event::PacketIn(..)))
        .count();
    let dropped = events
        .iter()
        .filter(|event| **event == Event::Dropped(DropReason::Meter))
        .count();
    assert_eq!((packet_ins, dropped), (3, 37));
    assert_eq!(bridge.meter_count(MeterId::CONTROLLER), Some((0, 40, vec![37])));
    bridge.meter_mod(&MeterMod::Delete(MeterId::CONTROLLER)).unwrap();
    assert_eq!(bridge.receive(1, &vec![frame("tcp"); 40]).len(), 40);
}

#[test]
fn an_explanation_names_the_meter_and_uses_nothing_up() {
    let mut bridge = Bridge::new(2);
    bridge.add_meter(
        ONE,
        MeterFlags(PKTPS.0 | MeterFlags::BURST.0),
        vec![Band {
            burst_size: 1,
            ..dropping(1)
        }],
    );
    bridge.add(0, 1, "", through(ONE, &[out(2)]));
    for band in [None, None, Some(0)] {
        let told = explain(&bridge.active, PortNo::from_raw(1), &frame("tcp"), bridge.now);
        assert!(told.steps.contains(&Step::Meter { meter: ONE, band }), "{told}");
        let text = format!(
            "meter 1: {}",
            if band.is_some() {
                "band 0 applies"
            } else {
                "within"
            }
        );
        assert!(told.to_string().contains(&text), "{told}");
        if band.is_none() {
            bridge.one(1, &frame("tcp"));
        }
    }
}

#[test]
fn each_fault_has_its_code() {
    let mut bridge = Bridge::new(2);
    let mut refusal = |meter: Meter| bridge.meter_mod(&MeterMod::Add(meter)).unwrap_err().code();
    for (what, meter, code) in [
        (
            "number 0",
            meter(MeterId(0), KBPS, vec![]),
            ErrorCode::OFPMMFC_INVALID_METER,
        ),
        (
            "too large",
            meter(MeterId(MeterId::MAX.0 + 1), KBPS, vec![]),
            ErrorCode::OFPMMFC_INVALID_METER,
        ),
        (
            "two units",
            meter(ONE, MeterFlags(3), vec![]),
            ErrorCode::OFPMMFC_BAD_FLAGS,
        ),
        (
            "unknown flag",
            meter(ONE, MeterFlags(0x10), vec![]),
            ErrorCode::OFPMMFC_BAD_FLAGS,
        ),
        (
            "no rate",
            meter(ONE, KBPS, vec![dropping(0)]),
            ErrorCode::OFPMMFC_BAD_RATE,
        ),
        (
            "many bands",
            meter(ONE, KBPS, vec![dropping(1); 17]),
            ErrorCode::OFPMMFC_OUT_OF_BANDS,
        ),
    ] {
        assert_eq!(refusal(meter), code, "{what}");
    }
    bridge.add_meter(ONE, KBPS, vec![]);
    let again = bridge
        .meter_mod(&MeterMod::Add(meter(ONE, KBPS, vec![])))
        .unwrap_err();
    assert_eq!(again.code(), ErrorCode::OFPMMFC_METER_EXISTS);
    let unknown = bridge
        .meter_mod(&MeterMod::Modify(meter(MeterId(2), KBPS, vec![])))
        .unwrap_err();
    assert_eq!(unknown.code(), ErrorCode::OFPMMFC_UNKNOWN_METER);
    assert_eq!(bridge.meter_mod(&MeterMod::Delete(MeterId(2))), Ok(0), "no error");
    bridge.add_meter(MeterId::CONTROLLER, KBPS, vec![]);
    for id in [MeterId(2), MeterId::CONTROLLER] {
        let flow = bridge
            .flow_mod(add(0, 1, "", through(id, &[out(2)])))
            .unwrap_err();
        assert_eq!(flow.code(), ErrorCode::OFPMMFC_INVALID_METER, "{id}");
    }
}

#[test]
fn a_deleted_meter_takes_the_flow_entries_that_use_it_along() {
    let mut bridge = Bridge::new(2);
    for id in 1..4 {
        bridge.add_meter(MeterId(id), KBPS, vec![dropping(1000)]);
        bridge
            .flow_mod(FlowMod {
                flags: FlowFlags::SEND_FLOW_REM,
                ..add(0, 1, &format!("in_port={id}"), through(MeterId(id), &[out(2)]))
            })
            .unwrap();
    }
    assert_eq!(bridge.meter_count(MeterId(2)), Some((1, 0, vec![0])));
    assert_eq!(bridge.meter_mod(&MeterMod::Delete(MeterId(2))), Ok(1));
    assert_eq!(bridge.removed[0].reason, RemovedReason::Delete);
    assert_eq!(bridge.meter_mod(&MeterMod::Delete(MeterId::ALL)), Ok(2));
    assert_eq!(
        (
            bridge.control.meter_len(),
            bridge.control.entry_len(),
            bridge.removed.len()
        ),
        (0, 0, 3)
    );
}

#[test]
fn a_meter_that_is_modified_goes_on_counting_and_its_bands_begin_anew() {
    let mut bridge = Bridge::new(2);
    // Without a burst size, 200 ms of the rate pass at once: two packets, and the one that exceeds them.
    bridge.add_meter(ONE, PKTPS, vec![dropping(10)]);
    bridge.add(0, 1, "", through(ONE, &[out(2)]));
    assert_eq!(at_once(&mut bridge, 10, "tcp").len(), 3);
    bridge
        .meter_mod(&MeterMod::Modify(meter(ONE, PKTPS, vec![dropping(20)])))
        .unwrap();
    assert_eq!(bridge.meter_count(ONE), Some((1, 10, vec![0])));
    assert_eq!(at_once(&mut bridge, 10, "tcp").len(), 5);
    let read_back: Vec<_> = bridge.control.meters().cloned().collect();
    assert_eq!(read_back, [meter(ONE, PKTPS, vec![dropping(20)])]);
}

#[test]
fn what_is_rolled_back_leaves_meters_groups_and_flow_entries_as_they_were() {
    let mut bridge = Bridge::new(4);
    let to = |port| Bucket::new([out(port)]);
    bridge.add_meter(ONE, PKTPS, vec![dropping(100)]);
    bridge.add_group(1, GroupKind::All, vec![to(2), to(3)]);
    bridge.add(0, 1, "", through(ONE, &[to_group(1)]));
    bridge.one(1, &frame("tcp"));
    let before = (bridge.meter_count(ONE), bridge.group_count(1), bridge.counts());
    let now: Time = bridge.now;
    for _ in 0..3 {
        bridge.change(|control, ops| {
            control.begin(ops);
            let new = meter(MeterId(2), KBPS, vec![dropping(5); 3]);
            control.meter_mod(&MeterMod::Add(new), now, ops).unwrap();
            control
                .meter_mod(&MeterMod::Modify(meter(ONE, KBPS, vec![])), now, ops)
                .unwrap();
            let group = Group {
                id: GroupId(1),
                kind: GroupKind::Indirect,
                buckets: [to(4)].into(),
            };
            control.group_mod(&GroupMod::Modify(group), now, ops).unwrap();
            control
                .flow_mod(add(0, 5, "udp", through(MeterId(2), &[to_group(1)])), now, ops)
                .unwrap();
            assert_eq!(
                control.meter_mod(&MeterMod::Delete(MeterId::ALL), now, ops),
                Ok(2)
            );
            control
                .group_mod(&GroupMod::Delete(GroupId::ALL), now, ops)
                .unwrap();
            let all = FlowMod::new(
                FlowModCommand::Delete,
                TableId::ALL,
                Default::default(),
                crate::harness::matching(""),
            );
            control.flow_mod(all, now, ops).unwrap();
            control.roll_back(ops);
            assert!(ops.is_empty());
        });
        assert_eq!(
            (bridge.meter_count(ONE), bridge.group_count(1), bridge.counts()),
            before
        );
    }
    assert_eq!(ports(&bridge.one(1, &frame("tcp"))), [2, 3]);
    assert_eq!((bridge.control.meter_len(), bridge.control.group_len()), (1, 1));
}
