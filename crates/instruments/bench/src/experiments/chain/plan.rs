//! The kinds of chains, the offered loads, and the port numbers and times that all measurements share.

use std::time::Duration;

use clap::ValueEnum;
use millrace_types::BitRate;

use crate::experiments::guests::System;

/// The port numbers of the source, the sink, and the two ends of the chain.
pub(super) const SOURCE: u32 = 1;
pub(super) const SINK: u32 = 2;
pub(super) const NEAR: u32 = 100;
pub(super) const FAR: u32 = 101;
/// The time limit for the start of a daemon, a chain or a function.
pub(super) const START: Duration = Duration::from_secs(30);
/// The time between a change and the start of a measurement.
pub(super) const WARM_UP: Duration = Duration::from_millis(500);
/// The size of the frame check sequence in bytes.
pub(super) const FCS_SIZE: u16 = 4;
/// The size of preamble and inter-packet gap in bytes, which a frame occupies on a wire besides its own size.
pub(super) const GAP_SIZE: u16 = 20;

/// The location of the functions, and the interface over which packets reach them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// In the worker
    Inline,
    /// In the worker, as WebAssembly modules
    Wasm,
    /// In processes that map the memory of packets
    Ring,
    /// The same, with functions that only read packets (`monitor`), one after the other (not measured by default)
    RingMonitor,
    /// The same, with all functions reading a packet at the same time (not measured by default)
    RingParallel,
    /// In processes that see copies of packets
    Isolated,
    /// In processes behind vhost-user ports, steered by flow entries: millrace-nf with its own virtio driver
    Vhost,
    /// The same, with DPDK's driver, net_virtio_user
    VirtioUser,
    /// In processes behind memif ports, steered by flow entries
    Memif,
    /// Virtual machines that forward, steered by flow entries: one TCP stream (not measured by default)
    Guest,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::Inline => "inline",
            Kind::Wasm => "wasm",
            Kind::Ring => "ring",
            Kind::RingMonitor => "ring-monitor",
            Kind::RingParallel => "ring-parallel",
            Kind::Isolated => "isolated",
            Kind::Vhost => "vhost",
            Kind::VirtioUser => "virtio-user",
            Kind::Memif => "memif",
            Kind::Guest => System::Millrace.chain(),
        }
    }

    /// Returns the class of the hops in the configuration.
    pub(super) const fn class(self) -> &'static str {
        match self {
            Kind::Wasm => "inline",
            Kind::RingMonitor | Kind::RingParallel => "ring",
            other => other.name(),
        }
    }

    pub(super) const fn is_steered(self) -> bool {
        matches!(self, Kind::Vhost | Kind::VirtioUser | Kind::Memif)
    }
}

/// The frames of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OfferedLoad {
    /// The size of a frame with its check sequence in bytes.
    pub(super) frame: u16,
    /// The limit of the rate on a wire; `None` for as many packets as possible.
    pub(super) rate: Option<BitRate>,
}

impl OfferedLoad {
    /// Returns the size of a frame in bytes as drivers and meters count it: without the check sequence.
    pub(super) const fn size(self) -> u16 {
        self.frame - FCS_SIZE
    }

    /// Returns the rate as meters count it: without check sequence, preamble and gap.
    pub(super) fn metered(self) -> Option<BitRate> {
        let part = |bps: u64| bps * u64::from(self.size()) / u64::from(self.frame + GAP_SIZE);
        self.rate.map(|rate| BitRate::from_bps(part(rate.bps())))
    }
}

/// The lengths, frame sizes and loads that are measured.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) lengths: Vec<u16>,
    pub(super) frames: Vec<u16>,
    pub(super) rate: Option<BitRate>,
    pub(super) window: Duration,
}

impl Plan {
    pub(super) fn offers(&self) -> impl Iterator<Item = OfferedLoad> + use<> {
        let rate = self.rate;
        self.frames
            .clone()
            .into_iter()
            .map(move |frame| OfferedLoad { frame, rate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offered_rate_includes_preamble_and_gap_and_the_metered_one_does_not() {
        let rate = Some("10Gbps".parse().unwrap());
        let offer = OfferedLoad { frame: 1518, rate };
        // The rate of 812,744 frames of 1,514 bytes per second.
        assert_eq!(offer.metered().map(BitRate::bps), Some(9_843_953_185));
        let flat_out = OfferedLoad {
            frame: 64,
            rate: None,
        };
        assert_eq!((flat_out.size(), flat_out.metered()), (60, None));
    }
}
