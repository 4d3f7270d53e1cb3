//! `millrace nf run`: runs a function over a capture file without a switch, or as a hop of a running chain.

use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, Result};
use millrace_builtin::CATALOGUE;
use millrace_loader::ANY_LOADERS;
use millrace_model::{ChainName, FunctionName, Hop, HopClass, HopName};
use millrace_nf::{Buffer, Context, Direction, Effects, Verdict};
use millrace_types::Time;
use millrace_wire::Frame;
use pcap_file::DataLink;
use pcap_file::pcap::{PcapPacket, PcapReader, PcapWriter};
use serde::Serialize;

use crate::chain_edit::change_chain;
use crate::cli::Run;
use crate::output::Session;

/// The number of packets in a burst.
const BURST: usize = 64;
/// The interval of the function's `tick` calls.
const TICK: millrace_types::Duration = millrace_types::Duration::from_millis(100);

pub(crate) fn run(session: &Session, wanted: &Run) -> Result<()> {
    match &wanted.read {
        Some(file) => offline(session, wanted, file),
        None => in_chain(session, wanted),
    }
}

/// The numbers of packets by verdict, and the function's counters.
#[derive(Serialize, Default)]
struct Outcome {
    packets: u64,
    next: u64,
    skipped: u64,
    /// Packets that the function sent.
    sent: u64,
    dropped: u64,
    to_port: u64,
    counters: Vec<(&'static str, u64)>,
}

fn offline(session: &Session, wanted: &Run, file: &Path) -> Result<()> {
    let kind = CATALOGUE.with_loaders(ANY_LOADERS).find(&wanted.function)?;
    let (setup, _) = crate::nf_rate::prepared(kind, &wanted.settings)?;
    let mut function = kind.make_function(&setup)?;
    let open = || file.display().to_string();
    let mut reader = PcapReader::new(File::open(file).with_context(open)?).with_context(open)?;
    let link_type = reader.header().datalink;
    anyhow::ensure!(
        link_type == DataLink::ETHERNET,
        "{}: its link type is {link_type:?}: expected Ethernet, such as a capture of one interface",
        file.display()
    );
    let mut writer = match &wanted.write {
        None => None,
        Some(path) => {
            let to = File::create(path).with_context(|| path.display().to_string())?;
            Some(PcapWriter::with_header(to, reader.header())?)
        }
    };
    let direction = match wanted.backward {
        false => Direction::Forward,
        true => Direction::Backward,
    };
    let (mut outcome, mut effects) = (Outcome::default(), Effects::new());
    let (mut first, mut next_tick) = (None, Time::ZERO);
    loop {
        let mut came: Vec<(core::time::Duration, Frame)> = Vec::new();
        while came.len() < BURST
            && let Some(packet) = reader.next_packet()
        {
            let packet = packet.with_context(open)?;
            came.push((packet.timestamp, Frame::new(&packet.data)));
        }
        let Some((last, _)) = came.last() else { break };
        let first = *first.get_or_insert(came[0].0);
        let now = Time::from_nanos(last.saturating_sub(first).as_nanos() as u64);
        if now >= next_tick {
            function.tick(now);
            next_tick = now + TICK;
        }
        let mut verdicts = vec![Verdict::Next; came.len()];
        let mut burst: Vec<&mut dyn Buffer> = came
            .iter_mut()
            .map(|(_, frame)| frame as &mut dyn Buffer)
            .collect();
        effects.reset(true);
        function.process_with_effects(
            &Context::new(now, direction),
            &mut burst,
            &mut verdicts,
            &mut effects,
        );
        drop(burst);
        outcome.sent += effects.sent().count() as u64;
        for ((timestamp, frame), verdict) in came.iter().zip(verdicts) {
            outcome.packets += 1;
            match verdict {
                Verdict::Next => outcome.next += 1,
                Verdict::Skip(_) => outcome.skipped += 1,
                Verdict::Drop => outcome.dropped += 1,
                Verdict::ToPort(_) => outcome.to_port += 1,
            }
            if let Some(writer) = writer.as_mut().filter(|_| verdict != Verdict::Drop) {
                let size = frame.bytes().len() as u32;
                writer.write_packet(&PcapPacket::new(*timestamp, size, frame.bytes()))?;
            }
        }
    }
    function.tick(next_tick);
    outcome.counters = setup.counters.read();
    session.print(&outcome, |outcome| {
        let mut text = format!(
            "{} packets: {} next, {} skip hops, {} dropped, {} to a port; {} sent by the function\n",
            outcome.packets, outcome.next, outcome.skipped, outcome.dropped, outcome.to_port, outcome.sent
        );
        for (name, value) in &outcome.counters {
            text += &format!("{name} {value}\n");
        }
        text
    })
}

/// Inserts a hop into a configured chain: before the given hop, or at the end.
fn in_chain(session: &Session, wanted: &Run) -> Result<()> {
    let (Some(bridge), Some(chain), Some(name)) = (&wanted.bridge, &wanted.chain, &wanted.hop) else {
        anyhow::bail!("expected --read FILE, or a bridge, a chain and a hop: --bridge, --chain, --hop");
    };
    let function: FunctionName = wanted.function.parse()?;
    let name: HopName = name.parse()?;
    let chain: ChainName = chain.parse()?;
    let mut hop = Hop::new(name.clone(), function);
    hop.class = match wanted.class {
        crate::cli::RunClass::Inline => HopClass::Inline,
        crate::cli::RunClass::Ring => HopClass::Ring,
        crate::cli::RunClass::Isolated => HopClass::Isolated,
    };
    let settings = wanted.settings.iter().map(|text| text.parse());
    hop.settings = settings.collect::<Result<_, _>>()?;
    let why = format!("run {} in {chain}/{name}", wanted.function);
    change_chain(session, bridge, chain.as_str(), &why, |wanted_chain| {
        let at = match &wanted.before {
            None => wanted_chain.hops.len(),
            Some(before) => wanted_chain
                .hops
                .iter()
                .position(|held| held.name.as_str() == before)
                .with_context(|| format!("chain {chain} has no hop {before}"))?,
        };
        wanted_chain.hops.insert(at, hop);
        Ok(())
    })
}
