//! The rate of a switch behind the classifying NIC by frame size, *modelled*: the least of the rates of wire, core, bus and workers.
//!
//! | stage | takes | from |
//! | --- | --- | --- |
//! | wire | frame, preamble and gap at its bit rate | IEEE 802.3 |
//! | core | the longest of: a beat a cycle, a header a cycle in each engine, some cycles a frame in the tables | the RTL, in cycles (docs/smart-nic-rtl.md); its clock is a target |
//! | bus | frame, completion and buffer number over PCI Express 3.0 with 8 lanes, with the headers of packets | assumed |
//! | workers | the measured time of a packet on one worker, times their number | measured without input and output |

use super::rows::WIRE_OVERHEAD;

/// A configuration of the RTL.
#[derive(Debug, Clone, Copy)]
pub(super) struct Core {
    pub(super) name: &'static str,
    gigabits: f64,
    clock_mhz: f64,
    beat_bytes: f64,
    engines: f64,
    /// Cycles of the tables for a frame.
    table_cycles: f64,
}

/// The configurations, as docs/smart-nic-rtl.md has them.
pub(super) const CORES: [Core; 2] = [
    Core {
        name: "ten",
        gigabits: 10.0,
        clock_mhz: 100.0,
        beat_bytes: 16.0,
        engines: 3.0,
        table_cycles: 5.0,
    },
    Core {
        name: "forty",
        gigabits: 40.0,
        clock_mhz: 250.0,
        beat_bytes: 64.0,
        engines: 5.0,
        table_cycles: 4.0,
    },
];

/// Sizes of frames with FCS in bytes; 384 is that of the published measurement.
pub(super) const SIZES: [u32; 5] = [64, 128, 256, 384, 1518];
/// The headers of a packet: Ethernet, MPLS, IPv4, UDP.
const HEADERS: f64 = 4.0;
/// Bytes of the frame check sequence, which the core does not see.
const FCS: f64 = 4.0;
/// Bytes a microsecond of 8 lanes of PCI Express 3.0: 8 GT/s, 128b/130b.
const BUS_BYTES: f64 = 8.0 * 8000.0 / 8.0 * 128.0 / 130.0;
/// The largest payload of a packet on the bus, and the bytes around it (framing, header of 4 words, sequence number, LCRC).
const BUS_PAYLOAD: f64 = 256.0;
const BUS_HEADER: f64 = 26.0;
/// Bytes of a completion, and of the number of a free buffer (docs/nic-interface.md).
const COMPLETION: f64 = 32.0;
const BUFFER: f64 = 2.0;

/// A rate, and the stage that limits it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    /// Millions of frames a second.
    pub(super) mpps: f64,
    pub(super) limit: &'static str,
}

/// Returns the rate for frames of a size, with a number of workers that take some nanoseconds a packet.
pub(super) fn rate(core: &Core, size: u32, workers: u32, nanos: f64) -> Rate {
    let bytes = f64::from(size) - FCS;
    let cycles = (bytes / core.beat_bytes)
        .ceil()
        .max(HEADERS / core.engines)
        .max(core.table_cycles);
    let bus = bytes + COMPLETION + BUFFER + BUS_HEADER * ((bytes / BUS_PAYLOAD).ceil() + 2.0);
    let stages = [
        (
            "wire",
            core.gigabits * 1000.0 / 8.0 / (f64::from(size) + WIRE_OVERHEAD),
        ),
        ("core", core.clock_mhz / cycles),
        ("bus", BUS_BYTES / bus),
        ("workers", f64::from(workers) * 1000.0 / nanos),
    ];
    let (limit, mpps) = stages
        .into_iter()
        .min_by(|one, other| one.1.total_cmp(&other.1))
        .unwrap_or(("workers", 0.0));
    Rate { mpps, limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_stage_limits() {
        let [ten, forty] = CORES;
        // 10 Gbit/s of 64 bytes are 14.88 million frames, and the core takes 5 cycles of 10 ns for each.
        let wire = rate(&ten, 64, 4, 20.0);
        assert!(
            wire.limit == "wire" && (wire.mpps - 14.881).abs() < 0.001,
            "{wire:?}"
        );
        let workers = rate(&forty, 64, 1, 25.0);
        assert_eq!((workers.limit, workers.mpps), ("workers", 40.0));
        // 60 bytes, a completion and a buffer number are 94 bytes in three packets: 172 of 7,877 bytes a microsecond.
        let bus = rate(&forty, 64, 8, 20.0);
        assert!(bus.limit == "bus" && (bus.mpps - 45.8).abs() < 0.05, "{bus:?}");
        let large = rate(&forty, 1518, 4, 20.0);
        assert!(
            large.limit == "wire" && (large.mpps - 3.25).abs() < 0.01,
            "{large:?}"
        );
    }
}
