//! Rows T10 to T13 of docs/gates.md: small files, SIGKILL, bit errors, unknown peers.

use std::time::Duration;

use millrace_process::{ProcessError, Running, is_installed, pause};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::super::error::{TransportBenchError, output};
use super::super::files;
use super::super::millrace::verified_bytes;
use super::super::peers::Ssh;
use super::super::recorder::Recorder;
use super::super::test_bed::{PathSettings, SENDER, address};
use super::{Live, Receiver, Transfer};
use crate::file_error::file;
use crate::gated::Gate;
use crate::gated::recorder::{Case, case};
use crate::random::Random;
use crate::usage::peak_memory;

/// The start of the status of a program that SIGKILL ended.
const SIGKILLED: &str = "signal: 9";
/// The size of the files of row T10.
const SMALL: f64 = 4_096.0;
/// The number of files that scp copies: it takes several round trips for each file.
const SCP_FILES: usize = 40;
/// The longest time that the link may take for the file of row T11, in seconds. Each kill takes about that time.
const KILL_FILE_MAX_S: f64 = 60.0;
/// The number of datagrams of each kind of row T13.
const UNKNOWN_PEERS: u32 = 400;
/// The size of these datagrams in bytes: QUIC does not answer shorter ones.
const DATAGRAM_SIZE: usize = 1_200;
/// The start of a QUIC packet with a version that no implementation supports. A server answers it (RFC 9000,
/// section 6).
const UNKNOWN_VERSION: &[u8] = b"\xc0\x1a\x2a\x3a\x4a\x08abcdefgh\x08ijklmnop";

/// The result of a transfer that went on after a kill.
struct Killed {
    /// Bytes that differ from the source.
    different: u64,
    /// Bytes that were verified before the kill and sent again.
    again: f64,
}

/// Records row T12: the wrong bytes, if the emulator corrupted packets, and the number of corrupted packets.
fn record_bit_errors(
    recorder: &mut Recorder<'_>,
    round: usize,
    asked: &str,
    (corrupted, different): (u64, u64),
) -> Result<(), TransportBenchError> {
    let row = case(
        "T12 live: wrong bytes committed",
        asked,
        Gate::Exactly(0.0),
        "bytes",
    );
    if corrupted == 0 {
        let reason = "the emulator corrupted no packet: the file is too small. To fix it: a higher --link, or no --quick";
        recorder.missing(&row, reason)?;
    } else {
        recorder.value(&row, round, different as f64)?;
    }
    let row = case(
        "T12 live: packets that the emulator corrupted",
        asked,
        Gate::None,
        "packets",
    );
    recorder.value(&row, round, corrupted as f64)
}

/// Returns the cases of row T11: bytes that differ, and bytes that are sent again.
fn kill_cases(asked: &str, bytes: u64) -> [Case; 2] {
    let most = 0.01 * bytes as f64 + 67_108_864.0;
    [
        case(
            "T11 live: bytes that differ after SIGKILL",
            asked,
            Gate::Exactly(0.0),
            "bytes",
        ),
        case(
            "T11 live: most bytes sent again after SIGKILL",
            asked,
            Gate::AtMost(most / 1_048_576.0),
            "MiB",
        ),
    ]
}

/// Returns the reason why row T11 is not measured if the link takes this time for its file.
fn too_slow(whole_s: f64) -> Option<String> {
    (whole_s > KILL_FILE_MAX_S).then(|| {
        format!(
            "the link takes {whole_s:.0} s for a file above the 64 MiB of the gate; expected: {KILL_FILE_MAX_S} s at most. \
             To fix it: a higher --link"
        )
    })
}

/// Kills a program. Returns false if it had ended before, with status 0.
fn kill(program: &mut Running) -> Result<bool, TransportBenchError> {
    // A program that has ended and was not waited for gets the signal without effect.
    if let (Ok(()), Ok(pid)) = (program.check(), i32::try_from(program.pid())) {
        let _ended = nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    match program.finish() {
        Ok(_) => Ok(false),
        Err(ProcessError::Ended { status, .. }) if status.starts_with(SIGKILLED) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

impl Live {
    /// Measures row T10: many files of 4 KiB, compared with rsync and scp.
    pub(super) fn small_files(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
    ) -> Result<(), TransportBenchError> {
        let path = PathSettings::new(100.0, 0.1);
        self.test_bed.set_path(&path)?;
        let count = recorder.length.small_files;
        let directory = self.test_bed.directory("small")?;
        let source = directory.join("source");
        files::write_small(&source, count)?;
        let receivers = self.receivers(&directory, 1, &[])?;
        let transfer = Transfer {
            source: &source,
            ramp_s: 0.0,
            options: &[],
            all: true,
        };
        let outcome = transfer.run(&self.test_bed, receivers, &mut |_, _| Ok(false))?;
        let ours = count as f64 / outcome.seconds;
        let asked = format!("{count} files of 4 KiB, RTT 100 ms, loss 0.1 %, {}", self.link());
        let row = case("T10 live: files a second", &asked, Gate::None, "1/s");
        recorder.value(&row, round, ours)?;
        let few = directory.join("few");
        files::write_small(&few, SCP_FILES)?;
        for (program, tree, files, gate) in [("rsync", &source, count, 3.0), ("scp", &few, SCP_FILES, 10.0)] {
            let row = case(
                format!("T10 live: files a second / {program}'s"),
                format!("{files} files of 4 KiB by {program}"),
                Gate::AtLeast(gate),
                "",
            );
            if !is_installed(program) || !is_installed("/usr/sbin/sshd") {
                let reason = format!("{program} or sshd is not there. To fix it: scripts/setup.sh peers");
                recorder.missing(&row, &reason)?;
                continue;
            }
            let ssh = Ssh::start(&self.test_bed)?;
            match ssh.copy(&self.test_bed, program, tree, files as f64 * SMALL) {
                Ok(result) => recorder.value(&row, round, ours / (files as f64 / result.seconds))?,
                Err(error) if error.ends_the_run() => return Err(error),
                Err(error) => recorder.missing(&row, &error.to_string())?,
            }
        }
        let _removed = std::fs::remove_dir_all(&directory);
        Ok(())
    }

    /// Measures row T11: kills either end at random moments, and sends again until the transfer is complete. A kill
    /// counts if the program was running.
    pub(super) fn kills(&self, recorder: &mut Recorder<'_>, round: usize) -> Result<(), TransportBenchError> {
        let path = PathSettings::new(20.0, 0.1);
        self.test_bed.set_path(&path)?;
        let mut random = Random::new(11 + round as u64);
        let kills = recorder.length.kills;
        let link = self.test_bed.link_bps / 8.0;
        let bytes = recorder.length.kill_bytes.max((2.0 * link) as u64);
        let asked = format!("{kills} kills, {} MiB, RTT 20 ms, {}", bytes >> 20, self.link());
        let [differs, sent_again] = kill_cases(&asked, bytes);
        // No transfer is shorter; start and ramp make it longer.
        let whole_s = bytes as f64 / link;
        if let Some(reason) = too_slow(whole_s) {
            return recorder.all_missing([differs, sent_again], &reason);
        }
        let (mut different, mut again_max) = (0, 0.0_f64);
        let (mut counted, mut tries) = (0, 0);
        while counted < kills {
            if tries == 2 * kills {
                let problem =
                    format!("{counted} of {tries} transfers were running when an end was to be killed");
                return Err(output("SIGKILL", problem));
            }
            let at_s = 0.2 + 1.1 * whole_s * random.below(1_000) as f64 / 1_000.0;
            let of_sender = random.percent(50);
            if let Some(killed) = self.kill_once(bytes, u64::from(tries), at_s, of_sender)? {
                different += killed.different;
                again_max = again_max.max(killed.again);
                counted += 1;
            }
            tries += 1;
        }
        recorder.value(&differs, round, different as f64)?;
        recorder.value(&sent_again, round, again_max / 1_048_576.0)
    }

    /// Sends a file, kills an end after some seconds, and sends the file again. Returns `None` if that end had finished
    /// before.
    fn kill_once(
        &self,
        bytes: u64,
        seed: u64,
        at_s: f64,
        of_sender: bool,
    ) -> Result<Option<Killed>, TransportBenchError> {
        let directory = self.test_bed.directory("kills")?;
        let source = directory.join("source");
        files::write(&source, bytes, seed)?;
        let transfer = |all| Transfer {
            source: &source,
            ramp_s: 0.0,
            options: &[],
            all,
        };
        let mut receivers = self.receivers(&directory, 1, &[])?;
        let mut sender = transfer(false).start(&self.test_bed, &receivers)?;
        pause(Duration::from_secs_f64(at_s))?;
        let victim = if of_sender {
            &mut sender
        } else {
            &mut receivers[0].running
        };
        let was_running = kill(victim)?;
        let mut killed = None;
        if was_running {
            pause(Duration::from_millis(50))?;
            let verified = verified_bytes(&sender.log());
            drop((sender, receivers));
            let place = directory.join("r0");
            let receivers = vec![Receiver::start(&self.test_bed, 0, &place, &["--delta"])?];
            let outcome = transfer(true).run_and_count(&self.test_bed, receivers, &mut |_, _| Ok(false))?;
            killed = Some(Killed {
                different: outcome.different,
                again: verified - outcome.present,
            });
        }
        std::fs::remove_dir_all(&directory).map_err(file(&directory))?;
        Ok(killed)
    }

    /// Measures row T12: bit errors that pass every checksum of the network.
    pub(super) fn bit_errors(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
    ) -> Result<(), TransportBenchError> {
        let path = PathSettings {
            rtt_ms: 20.0,
            forward: "corrupt=0.01%,bits=2,undetectable".to_owned(),
        };
        let bytes = (self.test_bed.link_bps / 8.0 * recorder.length.seconds as f64) as u64;
        self.test_bed.set_path(&path)?;
        let directory = self.test_bed.directory("bit-errors")?;
        let source = directory.join("source");
        files::write(&source, bytes, round as u64)?;
        let receivers = self.receivers(&directory, 1, &[])?;
        let transfer = Transfer {
            source: &source,
            ramp_s: 0.0,
            options: &[],
            all: true,
        };
        let before = self.test_bed.corrupted()?;
        let outcome = transfer.run_and_count(&self.test_bed, receivers, &mut |_, _| Ok(false))?;
        let corrupted = self.test_bed.corrupted()?.saturating_sub(before);
        let _removed = std::fs::remove_dir_all(&directory);
        let asked = format!(
            "2 bits in 1e-4 of the packets, {} MiB, {}",
            bytes >> 20,
            self.link()
        );
        record_bit_errors(recorder, round, &asked, (corrupted, outcome.different))
    }

    /// Measures row T13: the answers to datagrams of unknown peers, by kind, and the memory that such datagrams take.
    /// The row fails if the receiver ends, or if it takes no transfer afterwards.
    pub(super) fn unknown_peers(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
    ) -> Result<(), TransportBenchError> {
        self.test_bed.set_path(&PathSettings::new(0.2, 0.0))?;
        let directory = self.test_bed.directory("unknown-peers")?;
        let mut receivers = self.receivers(&directory, 1, &[])?;
        let memory = |receiver: &Receiver| {
            let peak = peak_memory(receiver.running.pid());
            peak.ok_or_else(|| output("millrace receive", "its peak memory cannot be read"))
        };
        let peak = memory(&receivers[0])?;
        let packet = directory.join("packet");
        let mut bytes = UNKNOWN_VERSION.to_vec();
        bytes.resize(DATAGRAM_SIZE, 0);
        std::fs::write(&packet, bytes).map_err(file(&packet))?;
        let kinds = [
            ("random bytes", format!("head -c {DATAGRAM_SIZE} /dev/urandom")),
            ("QUIC of an unknown version", format!("cat {}", packet.display())),
        ];
        let mut ratios = Vec::new();
        for (kind, command) in kinds {
            ratios.push((kind, self.answers_to(&mut receivers[0], &command)?));
        }
        let grown = memory(&receivers[0])?.saturating_sub(peak);
        let source = directory.join("source");
        files::write(&source, 1 << 20, round as u64)?;
        let transfer = Transfer {
            source: &source,
            ramp_s: 0.0,
            options: &[],
            all: true,
        };
        transfer.run(&self.test_bed, receivers, &mut |_, _| Ok(false))?;
        for (kind, ratio) in ratios {
            let row = case(
                format!("T13 live: bytes back / bytes of unknown peers, {kind}"),
                format!("{UNKNOWN_PEERS} datagrams"),
                Gate::AtMost(3.0),
                "",
            );
            recorder.value(&row, round, ratio)?;
        }
        let row = case(
            "T13 live: memory for unknown peers",
            format!("{} datagrams", 2 * UNKNOWN_PEERS),
            Gate::AtMost(1.0),
            "MiB",
        );
        recorder.value(&row, round, grown as f64 / 1_048_576.0)?;
        let _removed = std::fs::remove_dir_all(&directory);
        Ok(())
    }

    /// Sends datagrams, each the output of a command, to a receiver. Returns the bytes that came back, divided by those
    /// that were sent. Fails if the receiver has ended.
    fn answers_to(&self, receiver: &mut Receiver, command: &str) -> Result<f64, TransportBenchError> {
        let before = self.test_bed.frames()?;
        let to = address(0);
        // Each command makes one write, which is one datagram.
        let script = format!("for i in $(seq {UNKNOWN_PEERS}); do {command} > /dev/udp/{to}/7800; done");
        self.test_bed
            .start("unknown-peers", SENDER, &["bash", "-c", &script])?
            .finish()?;
        pause(Duration::from_millis(500))?;
        receiver.running.check()?;
        let after = self.test_bed.frames()?;
        let (back, sent) = (after[0] - before[0], after[1] - before[1]);
        if sent < f64::from(UNKNOWN_PEERS) * 1_000.0 {
            return Err(output("bash", format!("only {sent} bytes were sent")));
        }
        Ok(back / sent)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::TransportRecord;
    use super::super::super::test_bed::{TestBed, obstacle};
    use super::*;
    use crate::gated::recorder::rows_of;
    use crate::record::Log;
    use std::os::unix::fs::PermissionsExt as _;

    /// A `millrace` whose receivers end with status 0 at the first datagram.
    const ENDS_AT_A_DATAGRAM: &str = r#"#!/bin/sh
[ "$2" = receive ] || exec MILLRACE "$@"
exec python3 -c '
import socket
unknown = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
unknown.bind(("", 7800))
print("{\"ticket\": \"none\"}", flush=True)
unknown.recv(2000)
'
"#;

    #[test]
    fn kills_are_not_measured_on_a_link_that_takes_minutes_for_the_file() {
        let reason = too_slow(1_610.0).unwrap();
        assert!(
            reason.contains("1610 s") && reason.contains("60 s at most. To fix it: a higher --link"),
            "{reason}"
        );
        assert_eq!(too_slow(12.3), None);
    }

    #[test]
    fn corrupted_packets_are_a_row_without_a_gate_and_wrong_bytes_need_one_such_packet() {
        let dir = tempfile::tempdir().unwrap();
        let rows = |corrupted: u64| {
            let mut log = Log::create(&dir.path().join("transport.jsonl")).unwrap();
            let mut progress = |_: &str| {};
            let length = super::super::super::RunLength::QUICK;
            let mut recorder = Recorder::new(length, &mut log, &mut progress);
            record_bit_errors(&mut recorder, 0, "8 MiB", (corrupted, 0)).unwrap();
            rows_of::<TransportRecord>(log.records())
                .into_iter()
                .map(|row| (row.asked, row.gate, row.reached, row.met))
                .collect::<Vec<_>>()
        };
        let row = |gate: &str, reached, met| ("8 MiB".to_owned(), gate.to_owned(), reached, met);
        assert_eq!(rows(0), [row("0 bytes", None, None), row("", Some(0.0), None)]);
        assert_eq!(
            rows(7),
            [row("0 bytes", Some(0.0), Some(true)), row("", Some(7.0), None)]
        );
    }

    #[test]
    fn a_kill_counts_only_if_the_program_was_running() {
        let dir = tempfile::tempdir().unwrap();
        let start = |script: &str| {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", script]);
            Running::start("test", &command, 0, &dir.path().join("log")).unwrap()
        };
        assert!(kill(&mut start("exec sleep 600")).unwrap());
        let mut ended = start("exit 0");
        ended.finish().unwrap();
        assert!(!kill(&mut ended).unwrap());
        let mut failed = start("exit 3");
        while failed.check().is_ok() {}
        assert!(kill(&mut failed).is_err());
    }

    #[test]
    fn a_receiver_that_ends_when_unknown_peers_write_to_it_meets_no_gate() {
        let program = millrace_process::program_path("millrace", "MILLRACE");
        if let Some(reason) = obstacle(&program) {
            eprintln!("skipped: {reason}");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let stand_in = dir.path().join("millrace");
        let program = std::fs::canonicalize(&program).unwrap();
        let text = ENDS_AT_A_DATAGRAM.replace("MILLRACE", program.to_str().unwrap());
        std::fs::write(&stand_in, text).unwrap();
        std::fs::set_permissions(&stand_in, std::fs::Permissions::from_mode(0o755)).unwrap();
        let live = Live {
            test_bed: TestBed::up(&stand_in, 1).unwrap(),
        };
        let mut log = Log::create(&dir.path().join("transport.jsonl")).unwrap();
        let mut progress = |_: &str| {};
        let length = super::super::super::RunLength::QUICK;
        let mut recorder = Recorder::new(length, &mut log, &mut progress);
        let error = live.unknown_peers(&mut recorder, 0).unwrap_err();
        assert!(error.to_string().contains("millrace receive"), "{error}");
        assert!(log.records().is_empty());
    }
}
