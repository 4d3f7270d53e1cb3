//! Losses, and what prevents them.

use std::fmt::Write;

use millrace_fib::Family;
use millrace_netlink::{Kernel, Settings};
use millrace_rib::event::{Change, Dump};

use crate::bed::{Consumer, NETNS, apart, batch, dump, open};

const COUNT: usize = 4000;
/// `RTPROT_BOOT`, the origin of routes of `ip`.
const BOOT: u8 = 3;

fn lines(verb: &str) -> String {
    (0..COUNT).fold(String::new(), |mut lines, number| {
        let _written = writeln!(
            lines,
            "route {verb} blackhole 10.{}.{}.0/24",
            number / 256,
            number % 256
        );
        lines
    })
}

#[test]
fn an_overrun_is_told_and_a_dump_makes_up_for_it() {
    let Some(namespace) = apart() else {
        return;
    };
    let mut consumer = Consumer::new(1);
    let settings = Settings {
        receive_buffer_size: 4096,
        ..Settings::default()
    };
    let kernel = Kernel::open(NETNS, &namespace, settings, consumer.sender.clone()).unwrap();
    for verb in ["add", "del"] {
        // The consumer takes nothing meanwhile, so that the reader stands still, and the buffer is full.
        batch(&lines(verb));
        consumer.until_change("the loss is told", |change| *change == Change::Lost);
        assert!(kernel.status().overruns > 0);
        dump(&kernel, &mut consumer, &[Dump::Routes(Family::V4)]);
        let expected = if verb == "add" { COUNT } else { 0 };
        assert_eq!(consumer.count(254, Family::V4, BOOT), expected);
        consumer.take();
    }
}

#[test]
fn a_consumer_that_pauses_loses_nothing() {
    let Some(namespace) = apart() else {
        return;
    };
    let mut consumer = Consumer::new(1);
    let kernel = open(&namespace, &consumer);
    batch(&lines("add"));
    consumer.until("all routes arrived", |consumer| {
        consumer.count(254, Family::V4, BOOT) == COUNT
    });
    batch(&lines("del"));
    consumer.until("all routes went", |consumer| {
        consumer.count(254, Family::V4, BOOT) == 0
    });
    assert_eq!(kernel.status().overruns, 0);
}

#[test]
fn routes_that_change_during_a_dump_end_as_the_kernel_has_them() {
    let Some(namespace) = apart() else {
        return;
    };
    let mut consumer = Consumer::new(4);
    let kernel = open(&namespace, &consumer);
    batch(&lines("add"));
    for round in 0..4 {
        let writer = std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                // A thread inherits the namespace of the thread that starts it.
                batch(&lines("del"));
                batch(&lines("add"));
                if round % 2 == 0 {
                    batch(&lines("del"));
                }
            });
            while !changes.is_finished() {
                kernel.execute(&millrace_rib::Action::Dump {
                    netns: NETNS,
                    dump: Dump::Routes(Family::V4),
                });
                consumer.until_change("a dump ends", |change| {
                    matches!(change, Change::DumpEnds(_) | Change::DumpFails(_))
                });
                consumer.take();
            }
            changes.join()
        });
        writer.unwrap();
        let expected = if round % 2 == 0 { 0 } else { COUNT };
        consumer.until("the routes are those of the kernel", |consumer| {
            consumer.count(254, Family::V4, BOOT) == expected
        });
        if round % 2 == 0 {
            batch(&lines("add"));
        }
    }
    assert_eq!(kernel.status().overruns, 0);
}
