//! Forwarding on one thread for a processor simulator (`millrace profile --simulate`): one stepped worker, memory
//! devices, and the flow entries and packets of a folder, without root and without DPDK devices.
//!
//! The simulator counts [`counted_round`] only: packets are written to memory before it and read after it.

use std::fs::{self, File};
use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use millrace_datapath::io::{DeviceOptions, DeviceSpec, HeapBackend};
use millrace_datapath::{BridgeSetup, Datapath, Stepper};
use millrace_flow::classify::{BURST, Simd};
use millrace_flow::text::FlowText;
use millrace_pipeline::{Control, ControlConfig, FlowMod, FlowModCommand, Op, Port};
use millrace_types::{PortNo, TableId, Time};
use millrace_wire::Frame;
use pcap_file::pcap::PcapReader;

/// The number of buffers: the minimum for one burst. The packets are then in few pages, which fit in the TLB
/// as huge pages do.
const BUFFERS: usize = 2 * BURST;
/// The size of a buffer without its headroom, in bytes; packets of a simulated run are short.
const BUFFER_SIZE: usize = 256;
/// The duration of a round on the worker's clock, in nanoseconds.
const ROUND_NANOS: u64 = 1000;
/// The ingress port, as in the workloads of `millrace bench`, and the number of ports.
const INGRESS: u32 = 1;
const PORTS: u32 = 3;

/// The hidden options of a simulated run, for `millrace profile` only.
#[derive(Args, Debug)]
pub(crate) struct SimulationOptions {
    /// A folder with `flows.txt` and `packets.pcap`: forward the packets by the entries, single-threaded, and exit.
    #[arg(long, value_name = "DIR", hide = true)]
    simulate: Option<PathBuf>,
    /// The number of counted packets.
    #[arg(long, value_name = "PACKETS", default_value_t = 65_536, hide = true)]
    simulate_packets: usize,
    /// The number of packets forwarded before the counted ones.
    #[arg(long, value_name = "PACKETS", default_value_t = 131_072, hide = true)]
    simulate_warm_up: usize,
}

impl SimulationOptions {
    /// Runs the simulated forwarding if it is requested, and returns true in that case. Prints the result as
    /// one JSON object.
    pub(crate) fn run(&self) -> Result<bool> {
        let Some(folder) = &self.simulate else {
            return Ok(false);
        };
        let text = self.forward(folder)?;
        std::io::stdout()
            .write_all(text.as_bytes())
            .context("standard output cannot be written")?;
        Ok(true)
    }

    fn forward(&self, folder: &Path) -> Result<String> {
        let frames = frames(&folder.join("packets.pcap"))?;
        let backend = Arc::new(HeapBackend::with_pool(BUFFERS, BUFFER_SIZE));
        let (datapath, mut stepper) = Datapath::stepped(Arc::clone(&backend));
        let mut control = Control::new(ControlConfig::default());
        let setup = BridgeSetup {
            forwarding: [control.forwarding(), control.forwarding()],
            counters: vec![control.counters(), control.counters()],
        };
        let mut ops = Vec::new();
        let tables = add_entries(&mut control, &folder.join("flows.txt"), &mut ops)?;
        ops.extend(tables.iter().map(|table| Op::Optimize(*table)));
        let bridge = stepper.serve(|| -> Result<_> {
            let mut bridge = datapath.bridge(setup)?;
            for number in 1..=PORTS {
                let port = PortNo::ordinary(number)?;
                control.set_port(Port::new(port), &mut ops);
                bridge.publish(&mut ops);
                bridge.catch_up();
                bridge.add_port(port, &DeviceSpec::Memory(name(number)), DeviceOptions::PLAIN)?;
            }
            Ok(bridge)
        })?;
        let ports: Vec<_> = (1..=PORTS).map(|number| backend.memory(&name(number))).collect();
        let Some(ingress) = ports.first() else {
            bail!("there is no port {INGRESS}")
        };
        let mut feed = frames.iter().cycle();
        let mut sent = [0_usize; PORTS as usize];
        let rounds = |packets: usize| packets.div_ceil(BURST);
        let (warm_up, counted) = (rounds(self.simulate_warm_up), rounds(self.simulate_packets));
        for round in 0..warm_up + counted {
            for frame in feed.by_ref().take(BURST) {
                ensure!(
                    ingress.send(frame),
                    "a packet of {} bytes finds no buffer",
                    frame.len()
                );
            }
            let now = Time::from_nanos(round as u64 * ROUND_NANOS);
            let mut forwarded = 0;
            if round < warm_up {
                forwarded += stepper.forward_round(now);
            } else {
                counted_round(&mut stepper, now, &mut forwarded);
            }
            ensure!(
                forwarded == BURST,
                "of {BURST} packets {forwarded} were forwarded"
            );
            for (port, sent) in ports.iter().zip(&mut sent) {
                while port.receive().is_some() {
                    *sent += usize::from(round >= warm_up);
                }
            }
        }
        let kinds: Vec<String> = tables
            .into_iter()
            .filter_map(|table| {
                let held = bridge.forwarding().table(table)?;
                Some(format!("\"table {}: {}\"", table.0, held.kind()))
            })
            .collect();
        // The stepper is dropped before the bridge, which waits for its workers.
        drop(stepper);
        drop(bridge);
        Ok(format!(
            "{{\"packets\":{},\"warm_up\":{},\"sent\":{:?},\"simd\":\"{}\",\"tables\":[{}]}}\n",
            counted * BURST,
            warm_up * BURST,
            sent,
            Simd::detect().name(),
            kinds.join(","),
        ))
    }
}

/// Runs a counted round. The simulator selects this function by name. All code that the function calls has
/// already run in the warm-up.
#[inline(never)]
fn counted_round(stepper: &mut Stepper<Frame>, now: Time, forwarded: &mut usize) {
    *forwarded += stepper.forward_round(now);
}

/// Returns the name of a port's memory device.
fn name(port: u32) -> String {
    format!("port{port}")
}

/// Returns the packets of a capture file.
fn frames(path: &Path) -> Result<Vec<Box<[u8]>>> {
    let expected = || format!("{}: expected a capture file (pcap)", path.display());
    let mut reader =
        PcapReader::new(BufReader::new(File::open(path).with_context(expected)?)).with_context(expected)?;
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        frames.push(
            packet
                .with_context(expected)?
                .data
                .into_owned()
                .into_boxed_slice(),
        );
    }
    ensure!(
        !frames.is_empty(),
        "{}: expected at least one packet",
        path.display()
    );
    Ok(frames)
}

/// Adds a flow entry for each line, and returns the tables with entries.
fn add_entries(control: &mut Control, path: &Path, ops: &mut Vec<Op>) -> Result<Vec<TableId>> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("{}: expected flow entries, one a line", path.display()))?;
    let mut tables = Vec::new();
    for line in text.lines() {
        let entry: FlowText = line.parse().map_err(|error| anyhow!("{line}: {error}"))?;
        let request = FlowMod::new(FlowModCommand::Add, entry.table, entry.priority, entry.matching);
        let request = FlowMod {
            instructions: entry.instructions.unwrap_or_default(),
            ..request
        };
        control
            .flow_mod(request, Time::ZERO, ops)
            .map_err(|error| anyhow!("{line}: {error:?}"))?;
        if !tables.contains(&entry.table) {
            tables.push(entry.table);
        }
    }
    Ok(tables)
}
