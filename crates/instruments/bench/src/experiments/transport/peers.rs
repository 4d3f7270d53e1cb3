//! Other transports over the test bed, each with the settings that are best for it.
//!
//! | system | program | settings |
//! | --- | --- | --- |
//! | TCP | iperf3 | `-C cubic` or `-C bbr` (the kernel's default may be either), 1 or 8 streams; buffers of 256 MiB; memory to memory |
//! | uftp | uftp, uftpd | `-R` at the rate of the link, without its congestion control; multicast; buffers of 4 MiB |
//! | SRT | srt-file-transmit | file mode, window and buffers of 64 MB |
//! | rsync, scp | rsync, scp, sshd | aes128-gcm, no compression, no cache of connections |

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use millrace_process::{Running, is_installed, pause};

use super::error::{TransportBenchError, output};
use super::files;
use super::test_bed::{SENDER, TestBed, address, host};
use crate::experiments::lan::iperf;
use crate::file_error::file;
use crate::record::Record;
use crate::usage::children_s;

/// The port of the SSH server, and of SRT.
const SSH: u16 = 2222;
const SRT: u16 = 9000;
/// The time limit of a peer's transfer.
pub(super) const LIMIT_S: &str = "300";

/// Returns the records of the systems, with their versions.
pub(super) fn systems() -> impl Iterator<Item = Record> {
    let versions = [
        ("iperf3", "memory to memory; -C cubic, -C bbr; 1 and 8 streams"),
        ("uftp", "multicast, -R at the rate of the link"),
        (
            "srt-file-transmit",
            "file mode; window of 64,000 packets, buffers of 64 MB",
        ),
        ("rsync", "over ssh, whole files"),
        ("scp", "aes128-gcm"),
    ];
    let installed = |(name, configuration): (&str, &str)| {
        let version = match is_installed(name) {
            false => Some("not there".to_owned()),
            true => millrace_process::version(name).map(|text| text.chars().take(60).collect()),
        };
        Record::System {
            system: name.to_owned(),
            version,
            configuration: configuration.to_owned(),
        }
    };
    versions.into_iter().map(installed)
}

/// A transfer by a peer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PeerResult {
    /// Payload to each receiver in bit/s.
    pub(super) goodput_bps: f64,
    /// Payload to all receivers in bytes.
    pub(super) bytes: f64,
    /// The duration in seconds.
    pub(super) seconds: f64,
    /// The processor time of the sender, and of all receivers.
    pub(super) cpu_s: [f64; 2],
    /// Bytes of frames that came back to the sender, and that left it.
    pub(super) frames: [f64; 2],
}

/// Measures the processor time, frames and duration of a transfer.
pub(super) struct Meter {
    cpu_s: f64,
    frames: [f64; 2],
    started: Instant,
}

impl Meter {
    pub(super) fn start(test_bed: &TestBed) -> Result<Meter, TransportBenchError> {
        Ok(Meter {
            cpu_s: children_s(),
            frames: test_bed.frames()?,
            started: Instant::now(),
        })
    }

    /// Returns the result of a transfer. Reads the sender's counters, ends the receivers by dropping them,
    /// and then reads their processor time.
    pub(super) fn end<T>(
        self,
        test_bed: &TestBed,
        receivers: T,
        bytes: f64,
        seconds: Option<f64>,
        count: usize,
    ) -> Result<PeerResult, TransportBenchError> {
        let seconds = seconds.unwrap_or_else(|| self.started.elapsed().as_secs_f64());
        let sender_s = children_s();
        let frames = test_bed.frames()?;
        drop(receivers);
        Ok(PeerResult {
            goodput_bps: bytes * 8.0 / seconds.max(1e-9) / count as f64,
            bytes,
            seconds,
            cpu_s: [sender_s - self.cpu_s, children_s() - sender_s],
            frames: std::array::from_fn(|index| frames[index] - self.frames[index]),
        })
    }
}

/// Measures TCP by iperf3, after a ramp.
pub(super) fn tcp(
    test_bed: &TestBed,
    receiver: usize,
    congestion_control: &str,
    streams: u32,
    (ramp_s, seconds): (u64, u64),
) -> Result<PeerResult, TransportBenchError> {
    let place = host(receiver);
    let mut server = test_bed.start(
        "iperf3 server",
        &place,
        &["iperf3", "--server", "--one-off", "--json"],
    )?;
    test_bed.wait_for_port(&place, "tcp", 5201, &mut server)?;
    let meter = Meter::start(test_bed)?;
    let (time, streams) = ((ramp_s + seconds).to_string(), streams.to_string());
    let to = address(receiver);
    let argv = [
        "timeout",
        LIMIT_S,
        "iperf3",
        "--client",
        &to,
        "--time",
        &time,
        "--interval",
        "1",
        "--congestion",
        congestion_control,
        "--parallel",
        &streams,
        "--json",
    ];
    let text = test_bed.start("iperf3", SENDER, &argv)?.finish()?;
    let report = iperf::Report::parse(&text).map_err(|error| output("iperf3", error.to_string()))?;
    let mut result = meter.end(test_bed, server, report.bytes, Some(report.seconds), 1)?;
    let steady: Vec<f64> = report
        .intervals
        .iter()
        .filter(|interval| interval.start >= ramp_s as f64)
        .map(|interval| interval.bps)
        .collect();
    if !steady.is_empty() {
        // The intervals of the ramp are left out: they count bytes that the sender's kernel had buffered but
        // not sent.
        result.goodput_bps = steady.iter().sum::<f64>() / steady.len() as f64;
    }
    Ok(result)
}

/// Measures uftp to several receivers; `rate_kbps` is -1 for no limit.
pub(super) fn uftp(
    test_bed: &TestBed,
    source: &Path,
    receivers: usize,
    rate_kbps: i64,
) -> Result<PeerResult, TransportBenchError> {
    let mut daemons = Vec::new();
    let mut places = Vec::new();
    for receiver in 0..receivers {
        let directory = test_bed.directory("uftpd")?;
        let to = path(&directory)?.to_owned();
        let argv = ["uftpd", "-d", "-x", "0", "-D", &to, "-I", "eth0", "-B", "4194304"];
        let mut daemon = test_bed.start("uftpd", &host(receiver), &argv)?;
        test_bed.wait_for_port(&host(receiver), "udp", 1044, &mut daemon)?;
        daemons.push(daemon);
        places.push(directory);
    }
    let meter = Meter::start(test_bed)?;
    let rate = rate_kbps.to_string();
    let argv = [
        "timeout", LIMIT_S, "uftp", "-R", &rate, "-I", "eth0", "-B", "4194304",
    ];
    let argv = [argv.as_slice(), &[path(source)?]].concat();
    let text = test_bed.start("uftp", SENDER, &argv)?.finish()?;
    let seconds = text
        .lines()
        .filter_map(|line| line.strip_prefix("Total elapsed time:"))
        .filter_map(|rest| rest.split_whitespace().next()?.parse::<f64>().ok())
        .next_back()
        .ok_or_else(|| output("uftp", "no elapsed time"))?;
    let completed = text.matches("Completed").count();
    let size = fs::metadata(source).map_err(file(source))?.len() as f64;
    let result = meter.end(
        test_bed,
        daemons,
        size * receivers as f64,
        Some(seconds),
        receivers,
    )?;
    let name = source.file_name().unwrap_or_default();
    let mut different = 0;
    for place in &places {
        different += files::differences(source, &place.join(name))?;
        let _removed = fs::remove_dir_all(place);
    }
    if completed < receivers {
        return Err(output(
            "uftp",
            format!("{completed} of {receivers} receivers completed"),
        ));
    }
    if different > 0 {
        return Err(output("uftp", format!("{different} bytes differ")));
    }
    Ok(result)
}

/// Measures SRT in file mode.
pub(super) fn srt(test_bed: &TestBed, source: &Path) -> Result<PeerResult, TransportBenchError> {
    let directory = test_bed.directory("srt")?;
    let options = "fc=64000&sndbuf=64000000&rcvbuf=64000000&transtype=file";
    let (from, to) = (
        format!("srt://:{SRT}?{options}"),
        format!("file://{}/", path(&directory)?),
    );
    let mut receiver = test_bed.start("srt receiver", &host(0), &["srt-file-transmit", &from, &to])?;
    test_bed.wait_for_port(&host(0), "udp", SRT, &mut receiver)?;
    let meter = Meter::start(test_bed)?;
    let (file_url, target) = (
        format!("file://{}", path(source)?),
        format!("srt://{}:{SRT}?{options}", address(0)),
    );
    let argv = ["timeout", LIMIT_S, "srt-file-transmit", &file_url, &target];
    test_bed.start("srt sender", SENDER, &argv)?.finish()?;
    let size = fs::metadata(source).map_err(file(source))?.len() as f64;
    let result = meter.end(test_bed, receiver, size, None, 1)?;
    let name = source.file_name().unwrap_or_default();
    let different = files::differences(source, &directory.join(name))?;
    let _removed = fs::remove_dir_all(&directory);
    if different > 0 {
        return Err(output("srt-file-transmit", format!("{different} bytes differ")));
    }
    Ok(result)
}

/// An SSH server in a receiver's host, with its own keys.
pub(super) struct Ssh {
    _server: Running,
    directory: PathBuf,
}

impl Ssh {
    /// Starts the server.
    pub(super) fn start(test_bed: &TestBed) -> Result<Ssh, TransportBenchError> {
        let directory = test_bed.directory("ssh")?;
        for name in ["host", "user"] {
            let key = directory.join(name);
            let argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path(&key)?];
            test_bed.run(SENDER, &argv)?;
        }
        let keys = directory.join("authorized");
        fs::copy(directory.join("user.pub"), &keys).map_err(file(&keys))?;
        let privileges = Path::new("/run/sshd");
        fs::create_dir_all(privileges).map_err(file(privileges))?;
        let configuration = directory.join("config");
        let text = format!(
            "Port {SSH}\nHostKey {0}/host\nAuthorizedKeysFile {0}/authorized\nStrictModes no\nUsePAM no\n\
             PermitRootLogin yes\nMaxStartups 100\nPidFile none\nSubsystem sftp internal-sftp\n",
            path(&directory)?
        );
        fs::write(&configuration, text).map_err(file(&configuration))?;
        let argv = ["/usr/sbin/sshd", "-D", "-e", "-f", path(&configuration)?];
        let mut server = test_bed.start("sshd", &host(0), &argv)?;
        test_bed.wait_for_port(&host(0), "tcp", SSH, &mut server)?;
        Ok(Ssh {
            _server: server,
            directory,
        })
    }

    /// Returns the options of ssh.
    fn options(&self) -> Result<Vec<String>, TransportBenchError> {
        let key = path(&self.directory)?;
        Ok([
            "-oStrictHostKeyChecking=no".to_owned(),
            "-oUserKnownHostsFile=/dev/null".to_owned(),
            "-oLogLevel=ERROR".to_owned(),
            "-oCompression=no".to_owned(),
            "-oCiphers=aes128-gcm@openssh.com".to_owned(),
            format!("-i{key}/user"),
        ]
        .into())
    }

    /// Copies a file or a directory by scp or rsync. The processor time of the receiver is not known, because
    /// its SSH server continues to run.
    pub(super) fn copy(
        &self,
        test_bed: &TestBed,
        program: &str,
        source: &Path,
        bytes: f64,
    ) -> Result<PeerResult, TransportBenchError> {
        let directory = test_bed.directory(program)?;
        let target = format!("{}:{}/", address(0), path(&directory)?);
        let options = self.options()?;
        let mut argv: Vec<String> = vec!["timeout".into(), LIMIT_S.into(), program.into()];
        match program {
            "scp" => {
                argv.extend(["-q".into(), "-r".into(), format!("-P{SSH}")]);
                argv.extend(options);
            }
            _ => {
                let shell = format!("ssh -p{SSH} {}", options.join(" "));
                argv.extend(["-a".into(), "--whole-file".into(), "-e".into(), shell]);
            }
        }
        argv.extend([path(source)?.to_owned(), target]);
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let meter = Meter::start(test_bed)?;
        test_bed.start(program, SENDER, &argv)?.finish()?;
        let result = meter.end(test_bed, (), bytes, None, 1)?;
        let name = source.file_name().unwrap_or_default();
        let different = files::differences(source, &directory.join(name))?;
        let _removed = fs::remove_dir_all(&directory);
        if different > 0 {
            return Err(output(program, format!("{different} bytes differ")));
        }
        Ok(result)
    }
}

pub(super) fn path(path: &Path) -> Result<&str, TransportBenchError> {
    path.to_str().ok_or_else(|| output("path", "a path is not UTF-8"))
}

/// An iperf3 stream that runs during a measurement.
pub(super) struct Background {
    client: Running,
    _server: Running,
}

impl Background {
    /// Starts a TCP stream to a receiver, for this many seconds.
    pub(super) fn start(
        test_bed: &TestBed,
        receiver: usize,
        congestion_control: &str,
        seconds: u64,
    ) -> Result<Background, TransportBenchError> {
        let place = host(receiver);
        let mut server = test_bed.start(
            "iperf3 server",
            &place,
            &["iperf3", "--server", "--one-off", "--json"],
        )?;
        test_bed.wait_for_port(&place, "tcp", 5201, &mut server)?;
        let (to, time) = (address(receiver), seconds.to_string());
        let argv = [
            "iperf3",
            "--client",
            &to,
            "--time",
            &time,
            "--congestion",
            congestion_control,
            "--json",
        ];
        let client = test_bed.start("iperf3", SENDER, &argv)?;
        Ok(Background {
            client,
            _server: server,
        })
    }

    /// Waits for the end of the stream. Returns the mean rate in bit/s of the intervals from `second` on.
    pub(super) fn rate_from(mut self, second: f64) -> Result<f64, TransportBenchError> {
        let text = self.client.finish()?;
        let report = iperf::Report::parse(&text).map_err(|error| output("iperf3", error.to_string()))?;
        let rates: Vec<f64> = report
            .intervals
            .iter()
            .filter(|interval| interval.start >= second)
            .map(|interval| interval.bps)
            .collect();
        pause(Duration::ZERO)?;
        Ok(rates.iter().sum::<f64>() / rates.len().max(1) as f64)
    }
}
