//! Rows T6, T14 and T15 of docs/gates.md: processor time, feedback, the receive path, and memory.

use std::process::Command;

use serde_json::Value;

use super::super::arguments::Experiment;
use super::super::error::{TransportBenchError, output};
use super::super::files;
use super::super::library_peers::LibraryPeer;
use super::super::peers::{self, Ssh};
use super::super::recorder::Recorder;
use super::super::test_bed::PathSettings;
use super::{Live, Transfer, ramp_s};
use crate::gated::Gate;
use crate::gated::recorder::{Case, case};
use millrace_process::is_installed;

/// The CPU seconds per gigabyte, of both ends together, that gate T6 allows: 1.9 ns a byte for one
/// receiver.
const CPU_BUDGET: f64 = 1.9;
/// The size of the sparse file of row T15 in bytes, and the size of its data.
const SPARSE: [u64; 2] = [1 << 40, 10 << 30];
/// The same in a quick run.
const SPARSE_QUICK: [u64; 2] = [64 << 30, 256 << 20];
const MIB: f64 = 1_048_576.0;
/// The default size of the slab cache (`sender::CACHE_SIZE` of the transport).
const CACHE: f64 = 256.0 * MIB;
/// The memory in bytes that gate T15 allows beside the cache and the packets in flight.
const MEMORY_BASE: f64 = 64.0 * MIB;
/// The memory in bytes that gate T15 allows the sender for each packet in flight.
const MEMORY_PER_PACKET: f64 = 24.0;
/// The size of a packet in bytes: the MTU of the links (IEEE 802.3).
const PACKET_SIZE: f64 = 1_500.0;
/// The round-trip time of row T15 in milliseconds.
const MEMORY_RTT_MS: f64 = 400.0;
/// The window of Startup in bandwidth-delay products.
const STARTUP_BDPS: f64 = 2.0;

/// A ratio of row T14: the figure of memif divided by the figure of a receive path over sockets.
struct ReceivePath {
    /// The name of the receive path over sockets, in the output of the example.
    path: &'static str,
    /// The key of the figure in the output of the example.
    key: &'static str,
    /// The work that is done on the bytes, in words.
    what: &'static str,
    gate: Gate,
    target: Option<f64>,
}

/// The ratios of row T14, in the order of the rows.
const RECEIVE_PATH: [ReceivePath; 4] = {
    const fn ratio(path: &'static str, gate: Gate, target: f64) -> ReceivePath {
        ReceivePath {
            path,
            key: "bytes_per_cpu_s",
            what: "received",
            gate,
            target: Some(target),
        }
    }
    const fn opened(path: &'static str) -> ReceivePath {
        ReceivePath {
            path,
            key: "opened_bytes_per_cpu_s",
            what: "received and opened",
            gate: Gate::None,
            target: None,
        }
    }
    [
        ratio("recv", Gate::AtLeast(1.33), 1.67),
        opened("recv"),
        ratio("gro", Gate::None, 1.0),
        opened("gro"),
    ]
};

impl ReceivePath {
    fn row(&self) -> Case {
        let ReceivePath { path, what, .. } = self;
        let name = format!("T14 memif / sockets ({path}), bytes {what} for each CPU second");
        case(name, "frames one by one", self.gate, "").with_target(self.target)
    }
}

/// Returns the row of the variation between the runs of memif (T14).
fn receive_path_variation() -> Case {
    let name = "T14 memif: coefficient of variation of its runs";
    case(name, "10 runs", Gate::AtMost(0.05), "")
}

impl Live {
    /// Measures row T6: CPU seconds per gigabyte of both ends, relative to other systems, and the frames that
    /// came back to the sender.
    pub(super) fn costs(&self, recorder: &mut Recorder<'_>, round: usize) -> Result<(), TransportBenchError> {
        let mut ours = 0.0;
        for (loss, gate) in [(0.0, 0.1), (2.0, 0.5)] {
            let path = PathSettings::new(10.0, loss);
            let outcome = self.transfer(recorder, round, &path, 1, &[])?;
            let row = case(
                format!("T6 live: bytes back / bytes sent, RTT 10 ms, loss {loss} %"),
                self.link(),
                Gate::AtMost(gate),
                "%",
            );
            let back = 100.0 * outcome.frames[0] / outcome.frames[1].max(1.0);
            recorder.value(&row, round, back)?;
            if loss == 0.0 {
                let bytes: f64 = outcome.complete().map(|each| each.bytes).sum();
                let each = outcome.cpu_s.map(|seconds| seconds / bytes * 1e9);
                ours = each[0] + each[1];
                for (end, value) in ["sender", "receiver"].into_iter().zip(each) {
                    let name = format!("T6 live: CPU of the {end}, RTT 10 ms, no loss");
                    recorder.value(&case(name, self.link(), Gate::None, "s/GB"), round, value)?;
                }
                let name = "T6 live: CPU of both ends, RTT 10 ms, no loss";
                let row = case(name, self.link(), Gate::AtMost(CPU_BUDGET), "s/GB");
                recorder.value(&row, round, ours)?;
            }
        }
        let path = PathSettings::new(10.0, 0.0);
        self.test_bed.set_path(&path)?;
        let directory = self.test_bed.directory("costs")?;
        let source = directory.join("source");
        let bytes = (self.test_bed.link_bps / 8.0 * recorder.length.seconds as f64) as u64;
        files::write(&source, bytes, round as u64)?;
        let lengths = (ramp_s(&path).ceil() as u64, recorder.length.seconds);
        let mut others = vec![("iperf3 bbr x1", peers::tcp(&self.test_bed, 0, "bbr", 1, lengths))];
        if is_installed("srt-file-transmit") {
            others.push(("srt", peers::srt(&self.test_bed, &source)));
        }
        for (system, result) in others {
            let name = format!("T6 live: CPU of both ends / {system}'s, which hashes and seals nothing");
            let row = case(name, self.link(), Gate::None, "");
            match result {
                Ok(result) => {
                    let theirs = (result.cpu_s[0] + result.cpu_s[1]) / result.bytes * 1e9;
                    recorder.value(&row, round, ours / theirs.max(1e-9))?;
                }
                Err(error) if error.ends_the_run() => return Err(error),
                Err(error) => recorder.missing(&row, &error.to_string())?,
            }
        }
        self.scp_beside(recorder, round, &source, bytes, ours)?;
        self.quinn_beside(recorder, round, &source, ours)?;
        let _removed = std::fs::remove_dir_all(&directory);
        Ok(())
    }

    /// Measures quinn. Like Millrace, quinn encrypts; unlike Millrace, it does not hash the files.
    fn quinn_beside(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        source: &std::path::Path,
        ours: f64,
    ) -> Result<(), TransportBenchError> {
        let name = "T6 live: CPU of both ends / quinn's, which hashes nothing";
        let row = case(name, self.link(), Gate::AtMost(0.9), "").target(0.7);
        if let Some(reason) = LibraryPeer::Quinn.obstacle() {
            return recorder.missing(&row, &reason);
        }
        match LibraryPeer::Quinn.transfer(&self.test_bed, source, 1, None) {
            Ok(result) => {
                let theirs = (result.cpu_s[0] + result.cpu_s[1]) / result.bytes * 1e9;
                recorder.value(&row, round, ours / theirs.max(1e-9))
            }
            Err(error) if error.ends_the_run() => Err(error),
            Err(error) => recorder.missing(&row, &error.to_string()),
        }
    }

    /// Measures scp. Only the processor time of its sending end is known.
    fn scp_beside(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        source: &std::path::Path,
        bytes: u64,
        ours: f64,
    ) -> Result<(), TransportBenchError> {
        let name = "T6 live: CPU of both ends / that of scp's sending end";
        let row = case(name, self.link(), Gate::None, "");
        if !is_installed("/usr/sbin/sshd") {
            let reason = "sshd is not there. To fix it: scripts/setup.sh peers";
            return recorder.missing(&row, reason);
        }
        let ssh = Ssh::start(&self.test_bed)?;
        match ssh.copy(&self.test_bed, "scp", source, bytes as f64) {
            Ok(result) => {
                let theirs = result.cpu_s[0] / result.bytes * 1e9;
                recorder.value(&row, round, ours / theirs.max(1e-9))
            }
            Err(error) if error.ends_the_run() => Err(error),
            Err(error) => recorder.missing(&row, &error.to_string()),
        }
    }

    /// Measures row T14: the receive path, with the example of the courier. The example prints a JSON object
    /// for each path.
    pub(super) fn receive_path(
        &self,
        experiment: &Experiment,
        recorder: &mut Recorder<'_>,
        round: usize,
    ) -> Result<(), TransportBenchError> {
        let program = &experiment.receive_path;
        if !program.is_file() {
            let reason = format!(
                "{} does not exist. To fix it: cargo build --release -p millrace-courier --example receive_path, \
                 and MILLRACE_RECEIVE_PATH=target/release/examples/receive_path",
                program.display()
            );
            let ratios = RECEIVE_PATH.iter().map(ReceivePath::row);
            return recorder.all_missing(ratios.chain([receive_path_variation()]), &reason);
        }
        let text = millrace_process::run_tool(&mut Command::new(program))?;
        let found = |path: &str, key: &str| {
            text.lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok())
                .find(|value| value["path"] == path)
                .and_then(|value| value[key].as_f64())
        };
        for ratio in &RECEIVE_PATH {
            let row = ratio.row();
            let (Some(memif), Some(sockets)) = (found("memif", ratio.key), found(ratio.path, ratio.key))
            else {
                recorder.missing(&row, "not in the output of receive_path: it needs root")?;
                continue;
            };
            recorder.value(&row, round, memif / sockets)?;
        }
        let cv = found("memif", "cv").ok_or_else(|| output("receive_path", "no memif in its output"))?;
        recorder.value(&receive_path_variation(), round, cv)
    }

    /// Measures row T15: resident memory for a large sparse file at a round-trip time of 400 ms.
    pub(super) fn memory(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
    ) -> Result<(), TransportBenchError> {
        let [size, data] = if recorder.length.quick {
            SPARSE_QUICK
        } else {
            SPARSE
        };
        let path = PathSettings::new(MEMORY_RTT_MS, 0.0);
        self.test_bed.set_path(&path)?;
        let directory = self.test_bed.directory("sparse")?;
        let source = directory.join("source");
        files::write_sparse(&source, size, data)?;
        let receivers = self.receivers(&directory, 1, &[])?;
        let transfer = Transfer {
            source: &source,
            ramp_s: 0.0,
            options: &[],
            all: true,
        };
        let outcome = transfer.run(&self.test_bed, receivers, &mut |_, _| Ok(false))?;
        let _removed = std::fs::remove_dir_all(&directory);
        let bdp = self.test_bed.link_bps / 8.0 * MEMORY_RTT_MS / 1e3;
        let window = STARTUP_BDPS * bdp;
        let in_flight = window / PACKET_SIZE;
        let gates = [
            (CACHE + MEMORY_BASE + MEMORY_PER_PACKET * in_flight) / MIB,
            (window + MEMORY_BASE) / MIB,
        ];
        let asked = format!(
            "{} GiB, {} MiB of them data, RTT 400 ms, {}",
            size >> 30,
            data >> 20,
            self.link()
        );
        for (index, end) in ["sender", "receiver"].into_iter().enumerate() {
            let name = format!("T15 live: resident memory of the {end}, sparse file");
            let row = case(name, &asked, Gate::AtMost(gates[index]), "MiB");
            recorder.value(&row, round, outcome.peak[index] / MIB)?;
        }
        Ok(())
    }
}
