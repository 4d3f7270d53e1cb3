//! The test bed of live measurements: two hosts, and between them a namespace with the system under test.
//!
//! ```text
//!  h1: sender                mid                     h2
//!  eth0 -------------- eth0 [system] eth1 ---------- eth0
//!                       '-- capture                   '-- capture
//! ```
//!
//! Links are veth pairs without offloads. The system is `millrace-wan`, or the kernel's bridge with a queueing
//! discipline (tbf, netem) where frames leave it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use millrace_lab::{Lab, Topology, UpOptions};
use millrace_process::{ProcessError, Running, is_installed, pause};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::error::WanBenchError;
use super::packets::{Capture, Load, NamespacedInterface, Sender, Stamp};
use crate::file_error::file;

/// The time limit for the start of an emulator, and for each of its replies.
const READY: Duration = Duration::from_secs(10);
/// The time, beyond the asked delay, after which a missing frame counts as lost.
const SPARE: Duration = Duration::from_millis(100);
/// The namespace between the hosts.
const MIDDLE: &str = "mid";
/// The programs that the test bed needs.
const PROGRAMS: [&str; 3] = ["ip", "tc", "ethtool"];

/// Returns the reason why live rows cannot be measured; `None` if they can.
pub(super) fn obstacle(program: &Path) -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("network namespaces need root".to_owned());
    }
    if let Some(missing) = PROGRAMS.iter().find(|program| !is_installed(program)) {
        return Some(format!("{missing} is not installed"));
    }
    (!program.is_file()).then(|| {
        format!(
            "millrace-wan does not exist at {}. To fix it: make build, or name it with --program",
            program.display()
        )
    })
}

/// Two hosts and the namespace between them. Dropping the value removes them.
pub(super) struct TestBed {
    lab: Lab,
    /// The number of the last run of frames.
    run: u32,
    has_bridge: bool,
}

/// The frames of a run, captured where they entered the system and where they left it.
pub(super) struct Captured {
    pub(super) sent: u64,
    pub(super) entered: Vec<Stamp>,
    pub(super) left: Vec<Stamp>,
}

impl TestBed {
    /// Builds the test bed.
    pub(super) fn up() -> Result<TestBed, WanBenchError> {
        /// The number makes names unique within a process, as in tests.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let text = format!(
            "name = \"wan-{}-{number}\"\n\n[[host]]\nname = \"h1\"\nip = \"10.0.0.1/24\"\n\n[[host]]\nname = \"{MIDDLE}\"\n\
             ip = [\"10.0.0.3/24\", \"10.0.1.3/24\"]\n\n[[host]]\nname = \"h2\"\nip = \"10.0.1.2/24\"\n\n\
             [[link]]\nends = [\"h1\", \"{MIDDLE}\"]\n\n[[link]]\nends = [\"{MIDDLE}\", \"h2\"]\n",
            std::process::id()
        );
        let topology =
            Topology::parse("wan.toml", &text).map_err(|error| WanBenchError::LabFile(error.to_string()))?;
        let lab = Lab::up(&topology, &UpOptions::default(), &mut |_| {})?;
        Ok(TestBed {
            lab,
            run: 0,
            has_bridge: false,
        })
    }

    fn namespace(&self, node: &str) -> PathBuf {
        Path::new("/run/netns").join(format!("mr-{}-{node}", self.lab.name()))
    }

    fn place(&self, node: &str) -> NamespacedInterface {
        NamespacedInterface {
            namespace: self.namespace(node),
            interface: "eth0",
        }
    }

    /// Runs a command in the namespace between the hosts, and returns its output.
    pub(super) fn run(&self, argv: &[&str]) -> Result<String, WanBenchError> {
        let failed = |output: String| ProcessError::Tool {
            command: argv.join(" "),
            output,
        };
        let output = self
            .lab
            .output(MIDDLE, argv)
            .map_err(|error| failed(error.to_string()))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if !output.status.success() {
            return Err(failed(text(&output.stderr)).into());
        }
        Ok(text(&output.stdout))
    }

    /// Replaces the system by the kernel's bridge, with a queueing discipline at the interface by which
    /// frames for h2 leave.
    pub(super) fn set_qdisc(&mut self, qdisc: &[&str]) -> Result<(), WanBenchError> {
        if !self.has_bridge {
            self.run(&["ip", "link", "add", "br0", "type", "bridge"])?;
            self.has_bridge = true;
            for port in ["eth0", "eth1"] {
                self.run(&["ip", "link", "set", port, "master", "br0"])?;
            }
            self.run(&["ip", "link", "set", "br0", "up"])?;
        }
        let replace = ["tc", "qdisc", "replace", "dev", "eth1", "root"];
        self.run(&[&replace, qdisc].concat()).map(drop)
    }

    /// Removes the bridge and the queueing discipline.
    pub(super) fn remove_qdisc(&mut self) -> Result<(), WanBenchError> {
        if self.has_bridge {
            self.run(&["tc", "qdisc", "del", "dev", "eth1", "root"])?;
        }
        self.remove_bridge()
    }

    /// Removes the bridge, if there is one. Used if the queueing discipline could not be set.
    pub(super) fn remove_bridge(&mut self) -> Result<(), WanBenchError> {
        if self.has_bridge {
            self.run(&["ip", "link", "del", "br0"])?;
            self.has_bridge = false;
        }
        Ok(())
    }

    /// Starts an emulator, and returns when it answers.
    pub(super) fn emulator(
        &self,
        program: &Path,
        core: Option<usize>,
        options: &[&str],
    ) -> Result<Emulator, WanBenchError> {
        self.starter().emulator(program, core, options)
    }

    /// Returns a starter of emulators, which can be used while the test bed is borrowed.
    pub(super) fn starter(&self) -> Starter {
        Starter {
            namespace: format!("mr-{}-{MIDDLE}", self.lab.name()),
        }
    }

    /// Sends frames from h1 to h2, and captures them on both sides of the system. `longest` is the delay
    /// within which the last frame must arrive. `beside` runs on this thread while frames are sent; sending
    /// ends when `beside` returns.
    pub(super) fn load<T>(
        &mut self,
        load: Load,
        longest: Duration,
        beside: Option<&mut dyn FnMut() -> Result<T, WanBenchError>>,
    ) -> Result<(Captured, Option<T>), WanBenchError> {
        self.run += 1;
        let load = Load {
            run: self.run,
            ..load
        };
        let sender = Sender::open(&self.place("h1"))?;
        let (entry, exit) = (
            Capture::open(&self.place(MIDDLE))?,
            Capture::open(&self.place("h2"))?,
        );
        let (enough, end) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            let entered = scope.spawn(|| entry.read(load.run, &end));
            let left = scope.spawn(|| exit.read(load.run, &end));
            let sent = scope.spawn(|| sender.send(load, &enough));
            let result = beside.map(|beside| beside());
            if result.is_some() {
                enough.store(true, Ordering::Release);
            }
            let sent = join(sent);
            let waited = pause(longest + SPARE);
            end.store(true, Ordering::Release);
            let captured = Captured {
                sent: sent?,
                entered: join(entered)?,
                left: join(left)?,
            };
            waited?;
            Ok((captured, result.transpose()?))
        })
    }
}

/// The nice level of emulators.
const NICE: i32 = -20;

fn join<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    match handle.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

impl Drop for TestBed {
    fn drop(&mut self) {
        // `millrace lab status` lists the parts that could not be removed.
        if let Err(error) = Lab::down(self.lab.name()) {
            eprintln!("millrace: {error}");
        }
    }
}

/// Starts emulators in the namespace between the hosts.
pub(super) struct Starter {
    namespace: String,
}

impl Starter {
    /// Starts an emulator, and returns when it answers.
    pub(super) fn emulator(
        &self,
        program: &Path,
        core: Option<usize>,
        options: &[&str],
    ) -> Result<Emulator, WanBenchError> {
        let directory = tempfile::tempdir().map_err(file(Path::new("/tmp")))?;
        let socket = directory.path().join("wan.sock");
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.namespace])
            .arg(program)
            .args(["between", "kernel:eth0", "kernel:eth1", "--control"])
            .arg(&socket)
            .args(options);
        if let Some(core) = core {
            command.args(["--cores", &core.to_string()]);
        }
        let log = directory.path().join("log");
        let mut running = Running::start("millrace-wan", &command, NICE, &log)?;
        running.wait_for("its control socket", READY, |_| {
            Ok(ask(&socket, &json!({"command": "show"})).ok())
        })?;
        Ok(Emulator {
            running,
            socket,
            _directory: directory,
        })
    }
}

/// A running `millrace-wan`. Dropping the value ends it.
pub(super) struct Emulator {
    running: Running,
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl Emulator {
    /// Changes settings of both directions. The settings apply to frames that arrive later.
    pub(super) fn set(&self, settings: &[(&str, &str)]) -> Result<(), WanBenchError> {
        ask(&self.socket, &json!({"command": "set", "both": settings})).map(drop)
    }

    /// Kills the process with SIGKILL, and waits for its end.
    pub(super) fn kill(mut self) -> Result<(), WanBenchError> {
        let pid = i32::try_from(self.running.pid()).unwrap_or(i32::MAX);
        kill(Pid::from_raw(pid), Signal::SIGKILL)
            .map_err(|errno| WanBenchError::Control(format!("kill: {errno}")))?;
        while self.running.check().is_ok() {
            pause(Duration::from_millis(1))?;
        }
        Ok(())
    }
}

/// Sends a request to the control socket, and returns the status of the path.
fn ask(socket: &Path, request: &Value) -> Result<Value, WanBenchError> {
    let failed = file(socket);
    let exchange = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(READY))?;
        stream.write_all(format!("{request}\n").as_bytes())?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line)
    };
    let line = exchange().map_err(failed)?;
    let reply: Value =
        serde_json::from_str(&line).map_err(|error| WanBenchError::Control(error.to_string()))?;
    match reply.get("status") {
        Some(status) => Ok(status.clone()),
        None => Err(WanBenchError::Control(reply["error"].to_string())),
    }
}
