//! A test bed: a switch and a generator that is connected to it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::{End, Generator, PacketRange, Scheduling, Wiring, memory_mib, socket, wired};
use crate::hugepages::HugePages;
use crate::peer::{Forwarding, Load, Peer};
use crate::record::Record;
use crate::run::{RoundError, Run, RunError, replenish_huge_pages};
use crate::workload::{Shape, Sizes, Workload, write_frames};
use millrace_process::{ThreadTimes, pause, pin_process};

/// The seed of the workloads, the same in every run.
const SEED: u64 = 0x6d69_6c6c_7261_6365;
/// The duration of the warm-up, in which caches learn the flows.
const WARM_UP: Duration = Duration::from_secs(1);
/// The packets per second of the warm-up.
const WARM_UP_PPS: Option<f64> = Some(100_000.0);

/// The rules and packets that a test bed offers to a switch.
#[derive(Debug)]
pub(crate) struct OfferedLoad {
    /// The rules and packets.
    pub(crate) workload: Workload,
    load: Load,
    dir: PathBuf,
    /// The number of the round, from 0.
    pub(crate) round: usize,
    wiring: Wiring,
    /// The packets of the warm-up; `None` for all.
    warm_up: Option<PacketRange>,
}

impl OfferedLoad {
    /// Writes rules and packets of this shape, with frames of these sizes, to files in the directory of the run.
    pub(crate) fn new(
        run: &mut Run<'_>,
        name: &str,
        shape: Shape,
        sizes: &Sizes,
    ) -> Result<OfferedLoad, RunError> {
        let dir = run.resources(name, 1, 0).dir;
        fs::create_dir_all(&dir).map_err(RunError::file(&dir))?;
        let workload = Workload::new(shape, SEED);
        let flows = dir.join("flows");
        fs::write(&flows, workload.lines()).map_err(RunError::file(&flows))?;
        let mut offer = OfferedLoad {
            load: Load {
                flows,
                flows_len: workload.rules_len,
                packets_len: 0,
                ingress: Vec::new(),
                first_sink: None,
                memif: None,
            },
            workload,
            dir,
            round: 0,
            wiring: Wiring::OneWay,
            warm_up: None,
        };
        offer.resize(sizes)?;
        Ok(offer)
    }

    /// Writes frames for a learning bridge, which the generator sends into any of its ports. The only flow entry has
    /// the action NORMAL.
    pub(crate) fn bridge(
        run: &mut Run<'_>,
        name: &str,
        frames: impl Iterator<Item = Vec<u8>>,
        warm_up: PacketRange,
    ) -> Result<OfferedLoad, RunError> {
        let mut offer = OfferedLoad::new(run, name, Shape::OneRule, &Sizes::SMALLEST)?;
        let flows = &offer.load.flows;
        fs::write(flows, "priority=0,actions=NORMAL\n").map_err(RunError::file(flows))?;
        let packets = offer.dir.join("packets.pcap");
        offer.load.packets_len = write_frames(&packets, frames).map_err(RunError::file(&packets))?;
        (offer.wiring, offer.warm_up) = (Wiring::EveryPort, Some(warm_up));
        Ok(offer)
    }

    /// Writes the same flows with frames of other sizes.
    pub(crate) fn resize(&mut self, sizes: &Sizes) -> Result<(), RunError> {
        let packets = self.dir.join("packets.pcap");
        let error = RunError::file(&packets);
        self.load.packets_len = self
            .workload
            .write_packets(&packets, sizes, SEED)
            .map_err(error)?;
        self.load.ingress = vec![packets];
        Ok(())
    }
}

/// A running switch with a generator.
pub(crate) struct TestBed<'a> {
    /// The generator, which ends before the switch.
    pub(crate) generator: Generator,
    /// The switch.
    pub(crate) running: Box<dyn Forwarding>,
    peer: &'a dyn Peer,
    /// The resources of both.
    pub(crate) resources: crate::peer::Resources,
    load: Load,
    scheduling: Scheduling,
    wiring: Wiring,
    // The huge pages are released last.
    _pages: (Option<HugePages>, Option<HugePages>),
}

/// The result of a run of the generator.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// The report of the generator.
    pub(crate) end: End,
    /// The share of its core that the forwarding thread of the switch got, 0 to 1.
    pub(crate) core_share: f64,
}

impl<'a> TestBed<'a> {
    /// Starts the switch, installs its flow entries, starts the generator, and runs the warm-up.
    pub(crate) fn start(
        run: &mut Run<'_>,
        name: &str,
        peer: &'a dyn Peer,
        offer: &OfferedLoad,
        scheduling: Scheduling,
    ) -> Result<TestBed<'a>, RoundError> {
        let pages = run.huge_pages(memory_mib(peer, &offer.load));
        let mib = pages.as_ref().map_or(0, |(mib, _)| *mib);
        let resources = run.resources(&format!("{name}/{}-{}", peer.name(), offer.round), 1, mib);
        fs::create_dir_all(&resources.dir).map_err(RunError::file(&resources.dir))?;
        let more = replenish_huge_pages(&resources)?;
        let load = wired(&offer.load, socket(&resources.dir));
        let running = peer.start(&resources, &load)?;
        pin_process(running.pid(), resources.control_core);
        let generator = Generator::start_wired(&resources, &load, peer, scheduling, offer.wiring)?;
        let mut test_bed = TestBed {
            generator,
            running,
            peer,
            resources,
            load,
            scheduling,
            wiring: offer.wiring,
            _pages: (pages.map(|(_, pages)| pages), more),
        };
        match offer.warm_up {
            None => test_bed.generator.run(WARM_UP_PPS, WARM_UP)?,
            Some(portion) => test_bed.generator.send(WARM_UP_PPS, Some(WARM_UP), portion)?,
        };
        let mut commands = test_bed.running.commands();
        commands.push(test_bed.generator.command().to_owned());
        run.add(Record::Start {
            case: name.to_owned(),
            system: peer.name().to_owned(),
            round: offer.round,
            commands,
            install_s: test_bed
                .running
                .installation()
                .map(|installation| installation.seconds),
            install_bytes: test_bed
                .running
                .installation()
                .map(|installation| installation.memory),
            flows: test_bed.load.flows_len,
            warm_up_s: WARM_UP.as_secs_f64(),
        })?;
        Ok(test_bed)
    }

    /// Replaces the generator by one with the current packets of `offer`.
    pub(crate) fn reload(&mut self, offer: &OfferedLoad) -> Result<(), RoundError> {
        self.load.ingress.clone_from(&offer.load.ingress);
        // The old generator must end first, as a memif has only two ends.
        self.generator.finish()?;
        self.generator = Generator::start_wired(
            &self.resources,
            &self.load,
            self.peer,
            self.scheduling,
            self.wiring,
        )?;
        Ok(())
    }

    /// Sends a range of packets as [`Generator::send`] does.
    pub(crate) fn send(
        &mut self,
        rate: Option<f64>,
        length: Option<Duration>,
        portion: PacketRange,
    ) -> Result<Outcome, RoundError> {
        let before = ThreadTimes::of(self.running.pid());
        let end = self.generator.send(rate, length, portion)?;
        let core_share = ThreadTimes::of(self.running.pid()).core_share_since(&before, 1);
        Ok(Outcome { end, core_share })
    }

    /// Offers `rate` packets per second (`None`: full rate) for `length`.
    pub(crate) fn offer(&mut self, rate: Option<f64>, length: Duration) -> Result<Outcome, RoundError> {
        let before = ThreadTimes::of(self.running.pid());
        self.generator.begin(rate, Some(length))?;
        pause(length)?;
        let core_share = ThreadTimes::of(self.running.pid()).core_share_since(&before, 1);
        let end = self.generator.end(Duration::ZERO)?;
        Ok(Outcome { end, core_share })
    }
}
