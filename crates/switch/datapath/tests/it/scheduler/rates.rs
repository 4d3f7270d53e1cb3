//! Rates: limits are exact, guarantees hold, and weights share the rest.

use millrace_datapath::schedule::{PortPlan, QueuePlan};
use millrace_types::Time;

use super::{TestBed, bps, queue, rates};

#[test]
fn a_shaper_is_exact_from_1_mbit_to_100_gbit_for_every_size() {
    for (rate, millis, step) in [
        (1_000_000, 5_000, 50_000),
        (10_000_000, 1_000, 20_000),
        (50_000_000, 1_000, 20_000),
        (1_000_000_000, 100, 5_000),
        (5_000_000_000, 50, 5_000),
        (100_000_000_000, 10, 1_000),
    ] {
        for size in [64, 512, 1500] {
            let by_port = PortPlan {
                rate: bps(rate),
                ..PortPlan::default()
            };
            let by_queue = PortPlan {
                queues: vec![QueuePlan {
                    max_rate: bps(rate),
                    ..queue(0)
                }],
                ..PortPlan::default()
            };
            for plan in [by_port, by_queue] {
                let got = rates(&plan, &[(0, size)], millis, step)[0];
                // The port may exceed its rate by the burst at the start (one millisecond or two frames) and
                // by one packet.
                let burst = (rate as f64 / 1000.0).max(3_028.0 * 8.0) + 8.0 * size as f64;
                let (least, most) = (rate as f64, rate as f64 + burst * 1000.0 / millis as f64);
                let slack =
                    8_000.0 * size as f64 / millis as f64 + rate as f64 * step as f64 / (millis as f64 * 1e6);
                assert!(
                    got >= least - slack && got <= most + 1.0,
                    "{rate} bit/s with {size} bytes: {got}"
                );
            }
        }
    }
}

#[test]
fn a_worker_that_is_late_makes_up_for_it() {
    // Polled every 15 ms only.
    for size in [64, 1500] {
        let rate = 50_000_000;
        let plan = PortPlan {
            rate: bps(rate),
            queues: vec![QueuePlan {
                packets_max: 10_000,
                ..queue(0)
            }],
            ..PortPlan::default()
        };
        let got = rates(&plan, &[(0, size)], 6_000, 15_000_000)[0];
        assert!((got / rate as f64 - 1.0).abs() < 0.005, "{got}");
    }
}

#[test]
fn a_worker_that_is_late_makes_up_for_it_though_its_queue_runs_empty_meanwhile() {
    // The queue holds 1 ms of 1 Gbit/s. Packets arrive at twice the rate, but for 10 ms of each 60 ms the worker polls
    // nothing.
    let mut testbed = TestBed::new(&PortPlan {
        rate: bps(1_000_000_000),
        ..PortPlan::default()
    });
    let is_here = |nanos: &u64| !(20_000_000..30_000_000).contains(&(nanos % 60_000_000));
    for nanos in (0..200_000_000_u64).step_by(10_000).filter(is_here) {
        let now = Time::from_nanos(nanos);
        testbed.scheduler.note_poll(now);
        for _ in 0..20 {
            testbed.put(0, 125, now);
        }
        testbed.take(now);
    }
    let (sent, wanted) = (testbed.bytes_of(0), 200 * 125_000);
    assert!(
        sent.abs_diff(wanted) <= wanted / 100 + 125_000,
        "{sent} of {wanted}"
    );
}

#[test]
fn overhead_counts_for_each_packet() {
    let plan = PortPlan {
        rate: bps(88_000_000),
        overhead: 24,
        ..PortPlan::default()
    };
    let got = rates(&plan, &[(0, 64)], 1_000, 20_000)[0];
    assert!((got / 64_000_000.0 - 1.0).abs() < 0.002, "{got}");
}

#[test]
fn a_guarantee_holds_under_a_higher_priority_and_the_rest_goes_to_that() {
    let plan = PortPlan {
        rate: bps(100_000_000),
        queues: vec![
            QueuePlan {
                min_rate: bps(20_000_000),
                ..queue(1)
            },
            QueuePlan {
                priority: 7,
                ..queue(2)
            },
        ],
        ..PortPlan::default()
    };
    let got = rates(&plan, &[(0, 1500), (1, 300), (2, 64)], 2_000, 10_000);
    assert_eq!(got[0], 0.0, "no guarantee, lowest priority");
    assert!((got[1] / 20e6 - 1.0).abs() < 0.005, "{got:?}");
    assert!((got[2] / 80e6 - 1.0).abs() < 0.005, "{got:?}");
}

#[test]
fn weights_share_what_is_left_in_proportion_whatever_the_sizes() {
    let weighted = |id, weight| QueuePlan { weight, ..queue(id) };
    let plan = PortPlan {
        rate: bps(100_000_000),
        queues: vec![weighted(1, 10), weighted(2, 20), weighted(3, 70)],
        ..PortPlan::default()
    };
    let got = rates(&plan, &[(1, 64), (2, 1500), (3, 512)], 3_000, 10_000);
    for (got, wanted) in got.iter().zip([10e6, 20e6, 70e6]) {
        assert!((got / wanted - 1.0).abs() < 0.01, "{got} of {wanted}");
    }
}

#[test]
fn what_one_queue_may_not_take_goes_to_the_others() {
    let plan = PortPlan {
        rate: bps(100_000_000),
        queues: vec![
            QueuePlan {
                max_rate: bps(10_000_000),
                priority: 1,
                ..queue(1)
            },
            queue(2),
        ],
        ..PortPlan::default()
    };
    let got = rates(&plan, &[(1, 700), (2, 700)], 2_000, 10_000);
    assert!((got[0] / 10e6 - 1.0).abs() < 0.005, "{got:?}");
    assert!((got[1] / 90e6 - 1.0).abs() < 0.005, "{got:?}");
}

#[test]
fn after_a_pause_a_queue_and_a_port_send_a_burst_and_no_more() {
    let plan = PortPlan {
        rate: bps(100_000_000),
        queues: vec![QueuePlan {
            max_rate: bps(50_000_000),
            ..queue(1)
        }],
        ..PortPlan::default()
    };
    let mut testbed = TestBed::new(&plan);
    for (second, queue, bytes) in [(10, 1, 6_250), (20, 0, 12_500), (30, 1, 6_250)] {
        testbed.sent.clear();
        let now = Time::from_secs(second);
        testbed.fill(queue, 100, now);
        testbed.take(now);
        let sent = testbed.bytes_of(queue);
        assert!(sent.abs_diff(bytes) <= 100, "{sent} of {bytes}");
        for nanos in (0..900_000_000).step_by(50_000) {
            testbed.take(now + millrace_types::Duration::from_nanos(nanos));
        }
        assert!(testbed.scheduler.is_empty());
    }
}

#[test]
fn who_is_held_back_by_others_saves_up_no_more_than_a_burst() {
    // Queue 1 has a low limit, so that the port has unused capacity for a long time, which is not saved for queue 2.
    let plan = PortPlan {
        rate: bps(100_000_000),
        queues: vec![
            QueuePlan {
                max_rate: bps(1_000_000),
                ..queue(1)
            },
            queue(2),
        ],
        ..PortPlan::default()
    };
    let mut testbed = TestBed::new(&plan);
    for nanos in (0..100_000_000).step_by(50_000) {
        testbed.fill(1, 100, Time::from_nanos(nanos));
        testbed.take(Time::from_nanos(nanos));
    }
    let now = Time::from_millis(100);
    testbed.fill(2, 100, now);
    testbed.take(now);
    assert!(testbed.bytes_of(2) <= 12_700, "{}", testbed.bytes_of(2));
}
