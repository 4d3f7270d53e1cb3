//! The two halves allocate nothing while frames pass and parameters change: counted by the allocator itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use millrace_wan_emulator::{DirectionConfig, DirectionId, Halves, NoSources, Plan, Seed, heap_memory};

use crate::{config, nanos};

thread_local! {
    /// Allocations and releases of this thread since it began to count; `None` while it does not.
    static COUNT: Cell<Option<u64>> = const { Cell::new(None) };
}

struct Counting;

impl Counting {
    fn count() {
        // A thread that ends has no variables of its own any more.
        let _ = COUNT.try_with(|count| count.set(count.get().map(|count| count + 1)));
    }
}

// SAFETY: every call goes to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Counting::count();
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the number of allocations and releases of this thread during `work`.
fn allocations(work: impl FnOnce()) -> u64 {
    COUNT.set(Some(0));
    work();
    COUNT.take().unwrap()
}

#[test]
fn neither_half_allocates_whatever_the_path_does() {
    let settings = |delay, packets| {
        let mut path = config(&[
            ("mtu", "1500"),
            ("over-mtu", "too-big"),
            ("rate", "1Gbps"),
            ("delay", delay),
            ("jitter", "2ms,gamma,half-life=5ms"),
            ("order", "reordering"),
            (
                "loss",
                "1%;ge:1%,burst=4;4-state:p13=1%,p31=50%,p32=10%,p23=50%,p14=1%;ber:1e-6;outage:up=50ms,down=2ms",
            ),
            ("reorder", "1%,extra=3ms"),
            ("duplicate", "1%,extra=1ms"),
            ("corrupt", "2%,bits=3,deliver"),
        ]);
        path.set("queue", packets).unwrap();
        DirectionConfig {
            path,
            memory: Some("32MiB".parse().unwrap()),
            ..DirectionConfig::default()
        }
    };
    let plan = Plan::new(
        &settings("10ms", "500packets,red"),
        Seed::new(1),
        DirectionId::Forward,
        &NoSources,
    )
    .unwrap();
    let memory = heap_memory(plan.memory_size());
    let Halves {
        mut sender,
        mut receiver,
        mut icmp_errors,
        controller,
    } = plan.start(memory, nanos(0)).unwrap();
    let frame = [0x5a; 1000];
    let over_mtu = crate::icmp_errors::packet(1600);
    let mut buffer = [0; 2000];
    let mut taken = 0;
    for round in 0..20u64 {
        let next = if round % 2 == 0 {
            settings("20ms", "100packets")
        } else {
            settings("10ms", "700packets")
        };
        controller.set(&next, &NoSources).unwrap();
        let counted = allocations(|| {
            for number in 0..5000 {
                let now = nanos((round * 5000 + number) * 7_000);
                sender.offer(now, 0, &frame);
                sender.offer(now, 0, &over_mtu);
                sender.publish();
                while let Some(error) = icmp_errors.take() {
                    error.copy_to(&mut buffer);
                }
                icmp_errors.free();
                while let Some(frame) = receiver.take(now) {
                    frame.copy_to(&mut buffer);
                    taken += 1;
                }
                receiver.free();
                receiver.next_due();
            }
        });
        assert_eq!(counted, 0, "round {round}");
    }
    let stats = controller.stats();
    assert_eq!((stats.changes, stats.released), (20, taken));
    assert!(
        stats.dropped_in_all() > 5000 && stats.corrupted > 100 && stats.icmp_errors_sent > 100,
        "{stats:?}"
    );
    assert_ne!(allocations(|| drop(vec![0; 100])), 0, "the allocator counts");
}
