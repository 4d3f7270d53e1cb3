//! A switch and a generator, wired together.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::{End, Generator, Portion, Share, Wiring, memory_mib, socket, wired};
use crate::experiments::forward::top_up;
use crate::hugepages::HugePages;
use crate::peer::{Forwarding, Load, Peer};
use crate::record::Record;
use crate::run::{Run, RunError, TurnError};
use crate::workload::{Shape, Sizes, Workload, write_frames};
use millrace_process::{ThreadTimes, confine, pause};

/// The seed of workloads: every run offers the same.
const SEED: u64 = 0x6d69_6c6c_7261_6365;
/// How long a switch is offered packets before the first measurement, so that caches know its flows.
const WARM_UP: Duration = Duration::from_secs(1);
/// How fast.
const WARM_UP_PPS: Option<f64> = Some(100_000.0);

/// What is offered.
#[derive(Debug)]
pub(crate) struct Offer {
    /// Rules and packets.
    pub(crate) workload: Workload,
    load: Load,
    dir: PathBuf,
    /// Which time the system is started, from 0.
    pub(crate) round: usize,
    wiring: Wiring,
    /// What a switch is offered before the first measurement; everything, if it is none.
    warm_up: Option<Portion>,
}

impl Offer {
    /// Rules and packets of this shape, frames of these sizes, in files in the run's directory.
    pub(crate) fn new(run: &mut Run<'_>, name: &str, shape: Shape, sizes: &Sizes) -> Result<Offer, RunError> {
        let dir = run.site(name, 1, 0).dir;
        fs::create_dir_all(&dir).map_err(RunError::file(&dir))?;
        let workload = Workload::new(shape, SEED);
        let flows = dir.join("flows");
        fs::write(&flows, workload.lines()).map_err(RunError::file(&flows))?;
        let mut offer = Offer {
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

    /// A learning bridge, and a generator that sends these frames into any of its ports: one flow entry, whose action is
    /// NORMAL.
    pub(crate) fn bridge(
        run: &mut Run<'_>,
        name: &str,
        frames: impl Iterator<Item = Vec<u8>>,
        warm_up: Portion,
    ) -> Result<Offer, RunError> {
        let mut offer = Offer::new(run, name, Shape::OneRule, &Sizes::SMALLEST)?;
        let flows = &offer.load.flows;
        fs::write(flows, "priority=0,actions=NORMAL\n").map_err(RunError::file(flows))?;
        let packets = offer.dir.join("packets.pcap");
        offer.load.packets_len = write_frames(&packets, frames).map_err(RunError::file(&packets))?;
        (offer.wiring, offer.warm_up) = (Wiring::EveryPort, Some(warm_up));
        Ok(offer)
    }

    /// Returns the same flows with frames of other sizes.
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

/// A switch that is up, with a generator at it.
pub(crate) struct TestBed<'a> {
    /// The generator. It ends before the switch.
    pub(crate) generator: Generator,
    /// The switch.
    pub(crate) running: Box<dyn Forwarding>,
    peer: &'a dyn Peer,
    /// Where they run.
    pub(crate) site: crate::peer::Site,
    load: Load,
    share: Share,
    wiring: Wiring,
    // Given back last.
    _pages: (Option<HugePages>, Option<HugePages>),
}

/// A run of the generator, and what the switch's forwarding thread had of its core meanwhile.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// What came of it.
    pub(crate) end: End,
    /// The share of its core, 0 to 1.
    pub(crate) core_share: f64,
}

impl<'a> TestBed<'a> {
    /// Starts both; the switch has its flow entries then.
    pub(crate) fn start(
        run: &mut Run<'_>,
        name: &str,
        peer: &'a dyn Peer,
        offer: &Offer,
        share: Share,
    ) -> Result<TestBed<'a>, TurnError> {
        let pages = run.huge_pages(memory_mib(peer, &offer.load));
        let mib = pages.as_ref().map_or(0, |(mib, _)| *mib);
        let site = run.site(&format!("{name}/{}-{}", peer.name(), offer.round), 1, mib);
        fs::create_dir_all(&site.dir).map_err(RunError::file(&site.dir))?;
        let more = top_up(&site)?;
        let load = wired(&offer.load, socket(&site.dir));
        let running = peer.start(&site, &load)?;
        confine(running.pid(), site.control_core);
        let generator = Generator::start_wired(&site, &load, peer, share, offer.wiring)?;
        let mut test_bed = TestBed {
            generator,
            running,
            peer,
            site,
            load,
            share,
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

    /// Another generator, for the packets of `offer` as they are now.
    pub(crate) fn reload(&mut self, offer: &Offer) -> Result<(), TurnError> {
        self.load.ingress.clone_from(&offer.load.ingress);
        // The old one must be gone: a memif has two ends, no more.
        self.generator.finish()?;
        self.generator = Generator::start_wired(&self.site, &self.load, self.peer, self.share, self.wiring)?;
        Ok(())
    }

    /// Offers a portion as [`Generator::send`] does.
    pub(crate) fn send(
        &mut self,
        rate: Option<f64>,
        length: Option<Duration>,
        portion: Portion,
    ) -> Result<Outcome, TurnError> {
        let before = ThreadTimes::of(self.running.pid());
        let end = self.generator.send(rate, length, portion)?;
        let core_share = ThreadTimes::of(self.running.pid()).core_share_since(&before, 1);
        Ok(Outcome { end, core_share })
    }

    /// Offers `rate` packets a second (`None`: flat out) for this long.
    pub(crate) fn offer(&mut self, rate: Option<f64>, length: Duration) -> Result<Outcome, TurnError> {
        let before = ThreadTimes::of(self.running.pid());
        self.generator.begin(rate, Some(length))?;
        pause(length)?;
        let core_share = ThreadTimes::of(self.running.pid()).core_share_since(&before, 1);
        let end = self.generator.end(Duration::ZERO)?;
        Ok(Outcome { end, core_share })
    }
}
