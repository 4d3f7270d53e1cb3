//! The control socket: state and changes of the path, one JSON object a line.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use millrace_datapath::io::wan::{PathSpec, Wans};
use millrace_datapath::io::{Device, OpenError, SocketAccess, SocketFile};
use millrace_listener::{Admission, Limits, Source};
use millrace_wan_control::args::BetweenArgs;
use millrace_wan_control::{Change, DirectionStatus, InterfaceStatus, PathStatus, Reply, Request, Settings};
use millrace_wan_emulator::Scenario;
use parking_lot::Mutex;

use crate::forward::SideCounters;

/// The name of the only path of this process.
pub(crate) const PATH: &str = "path";
/// The time after which a silent client is disconnected.
const SILENCE: Duration = Duration::from_secs(60);
/// The limits of the clients, who have equal rights: at the limit, a new one closes the oldest connection.
const LIMITS: Limits = Limits {
    established: 0,
    established_of_source: 0,
    pending: 32,
    pending_of_source: 32,
};
/// The pause after a failed accept, for example when the process has no free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The longest request in bytes.
const REQUEST_MAX: u64 = 1 << 16;

/// The state that requests read and change.
pub(crate) struct Control {
    names: [String; 2],
    settings: Mutex<(Settings, Option<Scenario>)>,
    wans: Arc<Wans>,
    /// Empty once the path is closed.
    devices: Mutex<Vec<Box<dyn Device>>>,
    counters: [Arc<SideCounters>; 2],
}

impl Control {
    pub(crate) fn new(
        between: &BetweenArgs,
        settings: Settings,
        scenario: Option<Scenario>,
        wans: Arc<Wans>,
        devices: [Box<dyn Device>; 2],
        counters: [Arc<SideCounters>; 2],
    ) -> Control {
        Control {
            names: [&between.a, &between.b]
                .map(|name| name.strip_prefix("kernel:").unwrap_or(name).to_owned()),
            settings: Mutex::new((settings, scenario)),
            wans,
            devices: Mutex::new(devices.into()),
            counters,
        }
    }

    fn answer(&self, line: &str) -> Reply {
        let done = match serde_json::from_str::<Request>(line) {
            Ok(Request::Show) => Ok(()),
            Ok(Request::Set(change)) => self.set(&change),
            Err(error) => Err(format!(
                "not a request: {error}; expected {{\"command\":\"show\"}} or {{\"command\":\"set\",\"both\":[[\"delay\",\"10ms\"]]}}"
            )),
        };
        match done.and_then(|()| self.status()) {
            Ok(status) => Reply::Status(Box::new(status)),
            Err(reason) => Reply::Error(reason),
        }
    }

    /// Changes settings for frames from now on. A change ends the scenario, which would undo it.
    fn set(&self, change: &Change) -> Result<(), String> {
        let mut held = self.settings.lock();
        let mut settings = held.0.clone();
        settings.change(change);
        let spec = PathSpec {
            directions: settings.directions().map_err(|error| error.to_string())?,
            seed: settings.seed,
            scenario: None,
        };
        self.wans
            .configure(PATH, &spec)
            .map_err(|error| error.to_string())?;
        *held = (settings, None);
        Ok(())
    }

    /// Returns the state of the path.
    pub(crate) fn status(&self) -> Result<PathStatus, String> {
        let state = self.wans.states().into_iter().find(|state| state.name == PATH);
        let state = state.ok_or("the path is closed")?;
        let notes = self.settings.lock().0.notes();
        let directions = ["a_to_b", "b_to_a"]
            .into_iter()
            .zip(&state.spec.directions)
            .zip(&state.stats)
            .zip(&notes);
        let directions = directions
            .map(|(((name, config), stats), notes)| DirectionStatus::new(name, config, stats, notes))
            .collect();
        let devices = self.devices.lock();
        let interfaces = devices.iter().zip(&self.names).zip(&self.counters);
        let interfaces = interfaces.map(|((device, name), counters)| {
            let stats = device.stats();
            InterfaceStatus {
                device: name.clone(),
                link_up: device.info().link_up,
                rx_missed: stats.rx_missed,
                rx_errors: stats.rx_errors + stats.rx_no_buffer,
                tx_refused: counters.tx_refused.load(Ordering::Relaxed),
                tx_errors: stats.tx_errors,
            }
        });
        Ok(PathStatus {
            name: format!("{}+{}", self.names[0], self.names[1]),
            ends: self.names.to_vec(),
            seed: state.spec.seed,
            directions,
            interfaces: interfaces.collect(),
        })
    }
}

/// The socket; dropping it removes the file and closes the interfaces.
pub(crate) struct Server {
    _file: SocketFile,
    control: Arc<Control>,
}

/// Only the user of this process may connect, because a client may change the path.
const ACCESS: SocketAccess = SocketAccess {
    owner: None,
    group: None,
    mode: 0o600,
};

impl Server {
    /// Listens at a path, and answers each client on a separate thread. The socket of a killed process is
    /// replaced; any other file stays.
    pub(crate) fn start(path: &Path, control: Arc<Control>) -> Result<Server> {
        let named = || format!("--control {}", path.display());
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).with_context(named)?;
        }
        let bind = || {
            UnixListener::bind(path).map_err(|error| OpenError::Failed {
                device: path.display().to_string(),
                reason: error.to_string(),
                next_step: "name another path".to_owned(),
            })
        };
        let (file, listener) = SocketFile::make(path, &ACCESS, bind).context("--control")?;
        let served = Arc::clone(&control);
        let admission = Admission::new(LIMITS, format!("--control {}", path.display()));
        let accept = move || {
            loop {
                if let Err(error) = accept_one(&listener, &admission, &served) {
                    tracing::warn!(%error, "a client of the control socket is not served");
                    std::thread::sleep(ACCEPT_PAUSE);
                }
            }
        };
        std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(accept)
            .with_context(named)?;
        Ok(Server { _file: file, control })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.control.devices.lock().clear();
    }
}

/// Accepts a client, and answers it on a thread of its own.
fn accept_one(listener: &UnixListener, admission: &Admission, control: &Arc<Control>) -> io::Result<()> {
    admission.wait();
    let (stream, _) = listener.accept()?;
    let other = stream.try_clone()?;
    let connection = admission.begin(Source::Local, move || drop(other.shutdown(Shutdown::Both)));
    let control = Arc::clone(control);
    let serve = move || {
        let _counted = connection;
        if let Err(error) = serve(&stream, &control) {
            tracing::debug!(%error, "a client of the control socket");
        }
    };
    std::thread::Builder::new()
        .name("client".to_owned())
        .spawn(serve)?;
    Ok(())
}

fn serve(stream: &UnixStream, control: &Control) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        if io::Read::take(&mut reader, REQUEST_MAX).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut reply = serde_json::to_string(&control.answer(&line))?;
        reply.push('\n');
        writer.write_all(reply.as_bytes())?;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use millrace_datapath::io::{Backend as _, DeviceOptions, DeviceSpec, HeapBackend};
    use millrace_wan_control::args::DirectionArgs;

    use super::*;

    /// Starts the control socket of two interfaces in memory.
    fn start(path: &Path) -> Result<Server> {
        let backend = HeapBackend::new();
        let device = |name: &str| {
            let spec = DeviceSpec::Memory(name.to_owned());
            backend.open(&spec, DeviceOptions::PLAIN).unwrap().device
        };
        let between = BetweenArgs {
            a: "a".to_owned(),
            b: "b".to_owned(),
            settings: DirectionArgs::default(),
            scenario: None,
            seed: 1,
            memory: None,
            control: None,
            cores: Vec::new(),
            poll: false,
        };
        let control = Control::new(
            &between,
            between.settings(),
            None,
            Arc::clone(backend.wans()),
            [device("a"), device("b")],
            <[Arc<SideCounters>; 2]>::default(),
        );
        Server::start(path, Arc::new(control))
    }

    #[test]
    fn a_file_that_is_no_socket_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes");
        fs::write(&path, "mine").unwrap();
        let error = start(&path).err().unwrap();
        assert!(format!("{error:#}").contains("is not removed"), "{error:#}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn the_socket_is_for_its_user_alone_and_a_second_emulator_leaves_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wan.sock");
        let server = start(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let error = start(&path).err().unwrap();
        assert!(
            format!("{error:#}").contains("another process listens"),
            "{error:#}"
        );
        assert!(UnixStream::connect(&path).is_ok());
        drop(server);
        assert!(!path.exists());
    }

    #[test]
    fn the_socket_of_a_process_that_ended_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wan.sock");
        drop(UnixListener::bind(&path).unwrap());
        let _server = start(&path).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
    }
}
