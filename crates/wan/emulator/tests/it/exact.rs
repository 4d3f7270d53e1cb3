//! Exact results in virtual time: spacing by rate, depth of the queue, delay, order, counts.

use millrace_types::Time;
use millrace_wan_emulator::{DropReason, Framing, NoSources, Outcome, Path, PathModel, Seed};

use crate::{nanos, path, releases};

#[test]
fn frames_leave_in_the_spacing_of_the_rate_from_300_bit_to_400_gbit() {
    for (rate, bps) in [
        ("300bps", 300u128),
        ("10kbps", 10_000),
        ("1Gbps", 1_000_000_000),
        ("400Gbps", 400_000_000_000),
    ] {
        let mut path = path(&[("rate", rate), ("queue", "60s")]);
        let frame = [0; 60];
        let mut last = 0;
        // All frames are offered at once, as many as wait for less than 60 s.
        let frames = (50 * bps / (64 * 8)).min(100_000);
        for number in 1..=frames {
            let at = releases(&path.offer(Time::ZERO, &frame))[0];
            // The last bit of frame n is sent after n × 64 bytes, rounded up to a nanosecond. Rounding errors
            // do not add up.
            assert_eq!(
                u128::from(at),
                (number * 64 * 8 * 1_000_000_000).div_ceil(bps),
                "{rate}, frame {number}"
            );
            assert!(at >= last);
            last = at;
        }
    }
}

#[test]
fn a_queue_in_packets_drops_at_exactly_the_depth() {
    let mut path = path(&[("rate", "1Mbps"), ("queue", "10packets")]);
    let outcomes: Vec<_> = (0..15).map(|_| path.offer(Time::ZERO, &[0; 996])[0]).collect();
    let released = outcomes
        .iter()
        .take_while(|outcome| matches!(outcome, Outcome::Released(_)))
        .count();
    // One frame is being sent, and ten wait.
    assert_eq!(released, 11);
    assert_eq!(outcomes[11..], [Outcome::Dropped(DropReason::QueueFull); 4]);
    // 1000 bytes take 8 ms: there is room for one frame after the first one is sent.
    assert!(matches!(
        path.offer(nanos(7_999_999), &[0; 996])[0],
        Outcome::Dropped(DropReason::QueueFull)
    ));
    assert!(matches!(
        path.offer(nanos(8_000_000), &[0; 996])[0],
        Outcome::Released(_)
    ));
    assert!(matches!(
        path.offer(nanos(8_000_000), &[0; 996])[0],
        Outcome::Dropped(DropReason::QueueFull)
    ));
}

#[test]
fn a_queue_in_bytes_or_time_drops_at_exactly_the_depth() {
    // Frames of 1000 bytes on the link; 8 ms each at 1 Mbit/s.
    for (depth, accepted) in [
        ("10000B", 10),
        ("9999B", 9),
        ("80ms", 11),
        ("79999us", 10),
        ("0ms", 1),
    ] {
        let mut path = path(&[("rate", "1Mbps"), ("queue", depth)]);
        let outcomes = (0..15).map(|_| path.offer(Time::ZERO, &[0; 996])[0]);
        let released = outcomes
            .filter(|outcome| matches!(outcome, Outcome::Released(_)))
            .count();
        assert_eq!(released, accepted, "{depth}");
    }
}

#[test]
fn a_change_of_the_queue_keeps_those_that_wait() {
    let mut path = path(&[("rate", "1Mbps"), ("queue", "10packets")]);
    let count = |path: &mut Path, at: u64| {
        let outcomes = (0..20).map(|_| path.offer(nanos(at), &[0; 996])[0]);
        outcomes
            .filter(|outcome| matches!(outcome, Outcome::Released(_)))
            .count()
    };
    assert_eq!(count(&mut path, 0), 11);
    let model = |text| {
        let config = crate::config(&[("rate", "1Mbps"), ("queue", text)]);
        millrace_wan_emulator::PathModel::compile(&config, &millrace_wan_emulator::NoSources).unwrap()
    };
    path.exchange(&mut model("12packets"));
    assert_eq!(count(&mut path, 0), 2);
    path.exchange(&mut model("3packets"));
    // Twelve wait; the ninth of them starts after 9 × 8 ms, and then three wait.
    assert_eq!(count(&mut path, 71_999_999), 0);
    assert_eq!(count(&mut path, 80_000_000), 1);
}

#[test]
fn a_constant_share_of_background_traffic_takes_that_share_of_the_rate() {
    let mut path = path(&[("rate", "10Mbps"), ("background", "40%"), ("queue", "20ms")]);
    let mut released = 0;
    let frames = 100_000u64;
    for number in 0..frames {
        // 1000 bytes each 0.5 ms: 16 Mbit/s are offered.
        let outcomes = path.offer(nanos(number * 500_000), &[0; 996]);
        released += releases(&outcomes).len();
    }
    let bps = released as f64 * 8000.0 / (frames as f64 * 0.0005);
    assert!((bps / 6e6 - 1.0).abs() < 0.001, "{bps}");
    let expected = 0.4 * 10e6 / 8.0 * 0.0005 * (frames - 1) as f64;
    assert!((path.background_bytes() as f64 / expected - 1.0).abs() < 1e-6);
}

#[test]
fn bursts_of_background_traffic_take_their_mean_share() {
    for shape in ["", ",pareto=3"] {
        let background = format!("on-off:90%,on=10ms,off=30ms{shape}");
        let mut path = path(&[("rate", "10Mbps"), ("background", &background), ("queue", "20ms")]);
        let frames = 2_000_000u64;
        for number in 0..frames {
            path.offer_sized(nanos(number * 500_000), 996);
        }
        let share = path.background_bytes() as f64 * 8.0 / 10e6 / (frames as f64 * 0.0005);
        assert!((share / 0.225 - 1.0).abs() < 0.03, "{shape} {share}");
    }
}

#[test]
fn a_lost_frame_used_bandwidth() {
    let mut path = path(&[("rate", "8Mbps"), ("loss", "every:2"), ("queue", "1s")]);
    let at: Vec<_> = (0..10)
        .flat_map(|_| releases(&path.offer(Time::ZERO, &[0; 996])))
        .collect();
    assert_eq!(at, [1_000_000, 3_000_000, 5_000_000, 7_000_000, 9_000_000]);
}

#[test]
fn the_mtu_counts_the_layer_3_packet() {
    let mut path = path(&[("mtu", "1000")]);
    let mut tagged = vec![0; 14 + 4 + 1000];
    tagged[12..14].copy_from_slice(&[0x81, 0]);
    assert_eq!(releases(&path.offer(Time::ZERO, &tagged)).len(), 1);
    assert_eq!(releases(&path.offer(Time::ZERO, &[0; 1014])).len(), 1);
    assert_eq!(
        path.offer(Time::ZERO, &[0; 1015])[..],
        [Outcome::Dropped(DropReason::OverMtu)]
    );
}

#[test]
fn framing_sets_the_bytes_on_the_link() {
    for (framing, payload, tags, bytes) in [
        (Framing::Ethernet, 46, 0, 64),
        (Framing::Ethernet, 1500, 1, 1522),
        (Framing::EthernetGap, 1500, 0, 1538),
        (Framing::Ppp, 1500, 0, 1507),
        (Framing::Atm, 1500, 0, 32 * 53),
        (Framing::Atm, 32, 0, 53),
        (Framing::Atm, 33, 0, 2 * 53),
        (Framing::Custom(0), 46, 0, 46),
    ] {
        assert_eq!(framing.effective_size(payload, tags), bytes, "{framing}");
    }
}

#[test]
fn a_mahimahi_trace_sends_a_packet_at_each_opportunity() {
    let config = crate::config(&[("rate", "mahimahi:up"), ("queue", "60s")]);
    let files = |_: &str| Ok("5\n5\n10\n".to_owned());
    let mut path = Path::new(&config, millrace_wan_emulator::Seed::new(1), &files).unwrap();
    // 1500 bytes of layer 3 and 4 of overhead fill an opportunity; the file starts again after 10 ms.
    let at: Vec<_> = (0..7)
        .flat_map(|_| releases(&path.offer(Time::ZERO, &[0; 1514])))
        .collect();
    let ms = |list: &[u64]| list.iter().map(|ms| ms * 1_000_000).collect::<Vec<_>>();
    assert_eq!(at, ms(&[5, 5, 10, 15, 15, 20, 25]));
    // Opportunities at which nothing waits are lost; two small packets share one.
    let at: Vec<_> = (0..3)
        .flat_map(|_| releases(&path.offer(nanos(31_000_000), &[0; 762])))
        .collect();
    assert_eq!(at, ms(&[35, 35, 35]));
}

#[test]
fn ordered_mode_never_overtakes_and_reordering_mode_follows_the_draw() {
    for order in ["ordered", "reordering"] {
        let mut path = path(&[("delay", "10ms"), ("jitter", "5ms,normal"), ("order", order)]);
        let mut last = 0;
        let mut overtakes = 0;
        for number in 0..10_000u64 {
            let arrival = number * 10_000;
            let Outcome::Released(release) = path.offer(nanos(arrival), &[0; 60])[0] else {
                panic!("nothing is lost");
            };
            let own = arrival + release.drawn_delay;
            let expected = if order == "ordered" { own.max(last) } else { own };
            assert_eq!(release.at, nanos(expected));
            overtakes += usize::from(expected < last);
            last = expected;
        }
        assert_eq!(overtakes > 0, order == "reordering");
    }
}

#[test]
fn a_gap_reorders_every_nth_frame_and_no_other_waits_for_it() {
    let mut later = path(&[("delay", "10ms"), ("reorder", "100%,extra=3ms,gap=5")]);
    let mut ahead = path(&[("delay", "10ms"), ("reorder", "100%,ahead,gap=5")]);
    for number in 1..=50u64 {
        let arrival = number * 1_000_000;
        let fifth = number % 5 == 0;
        let at = |path: &mut Path| releases(&path.offer(nanos(arrival), &[0; 60]))[0] - arrival;
        assert_eq!(at(&mut later), if fifth { 13_000_000 } else { 10_000_000 });
        assert_eq!(at(&mut ahead), if fifth { 0 } else { 10_000_000 });
    }
}

#[test]
fn a_duplicate_follows_its_original() {
    let mut path = path(&[("delay", "10ms"), ("duplicate", "100%,extra=1ms")]);
    assert_eq!(
        releases(&path.offer(Time::ZERO, &[0; 60])),
        [10_000_000, 11_000_000]
    );
}

#[test]
fn scheduled_outages_and_traces_are_followed_to_the_frame() {
    let mut path = path(&[("loss", "outage:at=10ms,for=2ms,every=5ms")]);
    for ms in 0..40u64 {
        let lost = ms >= 10 && (ms - 10) % 5 < 2;
        assert_eq!(
            releases(&path.offer(nanos(ms * 1_000_000), &[0; 60])).is_empty(),
            lost,
            "{ms} ms"
        );
    }
    let config = crate::config(&[("loss", "trace:a"), ("delay", "trace:b")]);
    let files = |name: &str| {
        Ok(if name == "a" {
            "0010".to_owned()
        } else {
            "0 1ms\n10ms 2ms\n20ms 0".to_owned()
        })
    };
    let mut traced = Path::new(&config, millrace_wan_emulator::Seed::new(1), &files).unwrap();
    let mut last = 0;
    for number in 0..100u64 {
        let arrival = number * 1_000_000;
        let at = releases(&traced.offer(nanos(arrival), &[0; 60]));
        let delay = if number % 20 < 10 { 1_000_000 } else { 2_000_000 };
        assert_eq!(at.is_empty(), number % 4 == 2, "frame {number}");
        if let [at] = at[..] {
            assert_eq!(at, (arrival + delay).max(last), "frame {number}");
            last = at;
        }
    }
}

#[test]
fn a_scheduled_outage_that_is_set_under_traffic_counts_from_the_next_frame() {
    let second = 1_000_000_000;
    let model = |settings: &[(&str, &str)]| PathModel::compile(&crate::config(settings), &NoSources).unwrap();
    let mut path = path(&[]);
    path.offer(nanos(second), &[0; 60]);
    let outage = ("loss", "outage:at=10s,for=2s");
    path.exchange(&mut model(&[outage]));
    let lost = |path: &mut Path, times: std::ops::Range<u64>| -> Vec<u64> {
        times
            .filter(|time| releases(&path.offer(nanos(time * second), &[0; 60])).is_empty())
            .collect()
    };
    assert_eq!(lost(&mut path, 3600..3611), [3610]);
    // A change of another setting does not move the outage.
    path.exchange(&mut model(&[outage, ("delay", "1ms")]));
    assert_eq!(lost(&mut path, 3611..3640), [3611]);
    // An outage that is removed and set again begins again.
    path.exchange(&mut model(&[]));
    path.exchange(&mut model(&[outage]));
    assert_eq!(lost(&mut path, 3640..3660), [3650, 3651]);
}

#[test]
fn another_file_of_opportunities_begins_where_the_link_was() {
    let files = |name: &str| Ok(if name == "fast" { "1\n" } else { "100\n" }.to_owned());
    let model = |name: &str| {
        let config = crate::config(&[("rate", &format!("mahimahi:{name}")), ("queue", "1s")]);
        PathModel::compile(&config, &files).unwrap()
    };
    let second = 1_000_000_000;
    let mut path = Path::with_model(model("fast"), Seed::new(1), Time::ZERO);
    for millisecond in 0..60_000 {
        path.offer(nanos(millisecond * 1_000_000), &[0; 1514]);
    }
    path.exchange(&mut model("slow"));
    let release = releases(&path.offer(nanos(60 * second), &[0; 1514]));
    assert_eq!(release, [60 * second + 100_000_000]);
    assert_eq!(
        releases(&path.offer(nanos(60 * second), &[0; 1514])),
        [60 * second + 200_000_000]
    );
    // A change to the faster model does not let a frame overtake those whose release is decided.
    path.exchange(&mut model("fast"));
    assert_eq!(
        releases(&path.offer(nanos(60 * second), &[0; 1514])),
        [60 * second + 300_000_000]
    );
}

#[test]
fn a_long_pause_costs_bounded_time_with_background_traffic() {
    // 800 days of bursts of 1 ms: drawing each would take hours.
    let pause: u64 = 1 << 56;
    let mut path = path(&[
        ("rate", "1Gbps"),
        ("queue", "10ms"),
        ("background", "on-off:40%,on=1ms,off=1ms"),
    ]);
    path.offer(Time::ZERO, &[0; 60]);
    path.offer(nanos(pause), &[0; 60]);
    let expected = pause as f64 * 0.4 / 2.0 / 8.0;
    let share = path.background_bytes() as f64 / expected;
    assert!((0.999..1.001).contains(&share), "{share}");
}

#[test]
fn background_traffic_begins_with_the_rate() {
    let config = crate::config(&[("delay", "1ms")]);
    let mut path = Path::new(&config, Seed::new(1), &NoSources).unwrap();
    path.offer(Time::from_secs(10), &[0; 60]);
    let config = crate::config(&[("rate", "8Mbps"), ("queue", "10ms"), ("background", "50%")]);
    path.exchange(&mut PathModel::compile(&config, &NoSources).unwrap());
    path.offer(Time::from_secs(11), &[0; 60]);
    assert_eq!(path.background_bytes(), 500_000);
}

#[test]
fn a_frame_that_arrives_before_the_last_counts_as_the_last() {
    let mut path = path(&[("delay", "1ms")]);
    assert_eq!(releases(&path.offer(nanos(5_000_000), &[0; 60])), [6_000_000]);
    assert_eq!(releases(&path.offer(nanos(1_000_000), &[0; 60])), [6_000_000]);
}
