//! Tests of a session of BFD: detection, intervals, and packets that must be discarded.

use super::*;

const FAST: Settings = Settings {
    min_tx: Duration::from_millis(50),
    min_rx: Duration::from_millis(50),
    multiplier: 3,
};

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn pair() -> [Session; 2] {
    [Session::new(FAST, 1, ms(0)), Session::new(FAST, 2, ms(0))]
}

/// Runs two sessions for a time in ms. `heard[i]` is true if the packets of session `i` arrive. Returns the
/// number of packets that each session sent.
fn run(ends: &mut [Session; 2], times: core::ops::Range<u64>, heard: [bool; 2]) -> [usize; 2] {
    let mut sent = [0; 2];
    for at in times {
        for end in 0..2 {
            while let Some(packet) = ends[end].poll(ms(at), ms(at)) {
                sent[end] += 1;
                if heard[end] {
                    ends[1 - end].receive(&packet.emit(), ms(at));
                }
            }
        }
    }
    sent
}

#[test]
fn packets_that_wait_in_a_device_keep_the_session_up_and_silence_ends_it() {
    let mut ends = pair();
    run(&mut ends, 0..1500, [true, true]);
    let [mut waits, mut silent] = [ends[0].clone(), ends[0].clone()];
    // The detection time is 150 ms; nobody has received packets since 1,500 ms.
    while waits.poll(ms(1800), ms(1500)).is_some() {}
    assert_eq!(waits.state(), State::Up);
    let packet = ends[1].poll(ms(1790), ms(1500)).unwrap();
    waits.receive(&packet.emit(), ms(1790));
    while waits.poll(ms(1800), ms(1800)).is_some() {}
    assert_eq!(waits.state(), State::Up);
    while silent.poll(ms(1800), ms(1800)).is_some() {}
    assert_eq!(silent.state(), State::Down);
}

#[test]
fn two_sessions_come_up_and_then_send_in_the_fast_interval_with_jitter() {
    let mut ends = pair();
    run(&mut ends, 0..1500, [true, true]);
    assert_eq!(ends.each_ref().map(Session::state), [State::Up; 2]);
    let sent = run(&mut ends, 1500..6500, [true, true]);
    // 5 s in intervals of 37.5 to 50 ms.
    assert!(sent.iter().all(|sent| (100..=134).contains(sent)), "{sent:?}");
    assert_eq!(ends[0].detection_time(), Duration::from_millis(150));
    assert_eq!(ends[0].remote_discriminator(), ends[1].local_discriminator());
    assert!(
        !ends[0].is_polling && !ends[1].is_polling,
        "the poll sequence ended"
    );
}

#[test]
fn a_loss_one_way_takes_both_down_within_the_detection_time_and_they_come_back() {
    let mut ends = pair();
    run(&mut ends, 0..2000, [true, true]);
    run(&mut ends, 2000..2152, [true, false]);
    assert_eq!(ends[0].state(), State::Down);
    assert_eq!(ends[0].diagnostic(), Diagnostic::DetectionTimeExpired);
    run(&mut ends, 2152..2160, [true, false]);
    // The first session signals Down, and the second session receives the signal.
    assert_eq!(ends[1].state(), State::Down);
    assert_eq!(ends[1].diagnostic(), Diagnostic::NeighborDown);
    run(&mut ends, 2160..5000, [true, false]);
    assert!(ends.iter().all(|end| end.state() != State::Up));
    run(&mut ends, 5000..7000, [true, true]);
    assert_eq!(ends.each_ref().map(Session::state), [State::Up; 2]);
    assert_eq!(ends[0].counters().flaps, 3);
}

#[test]
fn a_session_that_is_down_sends_once_a_second() {
    let mut ends = pair();
    let sent = run(&mut ends, 0..10_000, [false, false]);
    assert!(sent.iter().all(|sent| (10..=14).contains(sent)), "{sent:?}");
}

#[test]
fn a_poll_is_answered_at_once_with_the_final_bit() {
    let mut ends = pair();
    run(&mut ends, 0..2000, [true, true]);
    let poll = ends[0].packet(true, false);
    ends[1].receive(&poll.emit(), ms(2000));
    assert_eq!(ends[1].deadline(), Some(Time::ZERO));
    let answer = ends[1].poll(ms(2000), ms(2000)).unwrap();
    assert!(answer.is_final && !answer.is_poll);
}

/// Returns two sessions that are up and have ended their poll sequences.
fn settled_pair() -> [Session; 2] {
    let mut ends = pair();
    run(&mut ends, 0..2000, [true, true]);
    assert!(ends.iter().all(|end| end.state() == State::Up && !end.is_polling));
    ends
}

/// Returns a packet from the peer of the first session. A final packet ends a poll sequence.
fn answer(ends: &[Session; 2], is_final: bool) -> [u8; PACKET_SIZE] {
    ends[1].packet(false, is_final).emit()
}

#[test]
fn longer_sending_and_shorter_detection_take_effect_when_the_poll_sequence_ends() {
    let mut ends = settled_pair();
    let settings = Settings {
        min_tx: Duration::from_millis(300),
        min_rx: Duration::from_millis(10),
        ..FAST
    };
    ends[0].set_settings(settings);
    let polled = ends[0].packet(ends[0].is_polling, false);
    assert!(polled.is_poll);
    assert_eq!(
        (polled.desired_min_tx, polled.required_min_rx),
        (settings.min_tx, settings.min_rx)
    );
    let quick_peer = Packet {
        desired_min_tx: Duration::from_millis(10),
        ..ends[1].packet(false, false)
    };
    let intervals = |ends: &[Session; 2]| (ends[0].tx_interval(), ends[0].detection_time());
    for is_final in [false, true] {
        let packet = Packet {
            is_final,
            ..quick_peer
        };
        ends[0].receive(&packet.emit(), ms(2000));
        let (tx_ms, detection_ms) = if is_final { (300, 30) } else { (50, 150) };
        assert_eq!(
            intervals(&ends),
            (
                Some(Duration::from_millis(tx_ms)),
                Duration::from_millis(detection_ms)
            )
        );
    }
}

#[test]
fn shorter_sending_and_longer_detection_take_effect_at_once_and_are_kept_by_a_further_change() {
    let mut ends = settled_pair();
    ends[1].settings.min_rx = Duration::from_millis(1);
    ends[0].receive(&answer(&ends, false), ms(2000));
    for (min_tx_ms, min_rx_ms) in [(20, 100), (80, 60)] {
        ends[0].set_settings(Settings {
            min_tx: Duration::from_millis(min_tx_ms),
            min_rx: Duration::from_millis(min_rx_ms),
            ..FAST
        });
        assert_eq!(ends[0].tx_interval(), Some(Duration::from_millis(20)));
        assert_eq!(ends[0].detection_time(), Duration::from_millis(300));
    }
    ends[0].receive(&answer(&ends, true), ms(2000));
    assert_eq!(ends[0].tx_interval(), Some(Duration::from_millis(80)));
    assert_eq!(ends[0].detection_time(), Duration::from_millis(180));
}

#[test]
fn a_session_that_goes_down_takes_its_new_intervals() {
    let mut ends = settled_pair();
    ends[0].set_settings(Settings {
        min_tx: Duration::from_secs(3),
        ..FAST
    });
    assert_eq!(ends[0].tx_interval(), Some(FAST.min_tx));
    let down = Packet {
        state: State::Down,
        ..ends[1].packet(false, false)
    };
    ends[0].receive(&down.emit(), ms(2000));
    assert_eq!(ends[0].state(), State::Down);
    assert_eq!(ends[0].tx_interval(), Some(Duration::from_secs(3)));
}

#[test]
fn a_peer_in_demand_mode_gets_packets_of_poll_sequences_only() {
    let mut ends = settled_pair();
    let demand = |is_final| Packet {
        is_demand: true,
        is_final,
        ..ends[1].packet(false, false)
    };
    let [periodic, last] = [false, true].map(|is_final| demand(is_final).emit());
    ends[0].receive(&periodic, ms(2000));
    assert_eq!(ends[0].tx_interval(), None);
    ends[0].set_settings(Settings {
        multiplier: 5,
        ..FAST
    });
    let polled = ends[0]
        .poll(ms(2100), ms(2100))
        .expect("a packet of the poll sequence");
    assert!(polled.is_poll && polled.multiplier == 5);
    ends[0].receive(&last, ms(2101));
    assert_eq!(ends[0].poll(ms(2140), ms(2140)), None);
}

#[test]
fn a_peer_that_wants_no_periodic_packets_gets_none() {
    let mut ends = pair();
    run(&mut ends, 0..2000, [true, true]);
    let quiet = Packet {
        required_min_rx: Duration::ZERO,
        ..ends[0].packet(false, false)
    };
    for second in 2..5 {
        ends[1].receive(&quiet.emit(), ms(second * 1000));
        assert_eq!(ends[1].poll(ms(second * 1000), ms(second * 1000)), None);
    }
}

#[test]
fn packets_that_the_rfc_discards_change_nothing() {
    let good = Session::new(FAST, 9, ms(0)).poll(ms(0), ms(0)).unwrap().emit();
    let mut session = Session::new(FAST, 1, ms(0));
    let changes: [(usize, u8); 7] = [
        (0, 0x40), // version 2
        (1, 0x44), // authentication
        (1, 0x41), // multipoint
        (2, 0),    // multiplier 0
        (3, 23),   // too short
        (3, 25),   // longer than the packet
        (11, 5),   // the discriminator of another session
    ];
    for (at, value) in changes {
        let mut bad = good;
        bad[at] = value;
        session.receive(&bad, ms(0));
        assert_eq!(session.state(), State::Down, "byte {at}");
    }
    let mut without_discriminator = good;
    without_discriminator[4..8].fill(0);
    session.receive(&without_discriminator, ms(0));
    // Up, without our discriminator.
    let mut up = good;
    up[1] = 0xc0;
    session.receive(&up, ms(0));
    session.receive(&good[..23], ms(0));
    assert_eq!(session.counters().discarded, 10);
    session.receive(&good, ms(0));
    assert_eq!(session.state(), State::Init);
}

#[test]
fn a_packet_is_laid_out_as_rfc_5880_says() {
    let packet = Packet {
        diagnostic: 3,
        state: State::Up,
        is_poll: true,
        is_final: false,
        is_demand: false,
        multiplier: 3,
        my_discriminator: 0x0102_0304,
        your_discriminator: 0x0506_0708,
        desired_min_tx: Duration::from_millis(50),
        required_min_rx: Duration::from_secs(1),
    };
    let bytes = [
        0x23, 0xe0, 3, 24, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0xc3, 0x50, 0, 0x0f, 0x42, 0x40, 0, 0, 0, 0,
    ];
    assert_eq!(packet.emit(), bytes);
    assert_eq!(Packet::parse(&bytes), Some(packet));
}

#[test]
fn a_frame_has_ttl_255_and_the_ports_of_rfc_5881() {
    let addresses = Addresses {
        local_mac: Mac([2, 0, 0, 0, 0, 1]),
        remote_mac: Mac([0, 0x23, 0x20, 0, 0, 1]),
        local: [169, 254, 1, 0].into(),
        remote: [169, 254, 1, 1].into(),
    };
    let packet = Session::new(FAST, 9, ms(0)).poll(ms(0), ms(0)).unwrap();
    let frame = addresses.frame(&packet, 49_152).unwrap();
    assert_eq!(frame.len(), 14 + 20 + 8 + 24);
    assert_eq!((frame[22], frame[23]), (255, 17));
    assert_eq!(frame[34..38], [0xc0, 0, 0x0e, 0xc8]);
    let mixed = Addresses {
        remote: IpAddr::from([0u8; 16]),
        ..addresses
    };
    assert_eq!(mixed.frame(&packet, 49_152), None);
}
