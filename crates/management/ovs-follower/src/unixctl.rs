//! The socket for `ovs-appctl`, which finds it as that of ovs-vswitchd: `RUN_DIR/ovs-vswitchd.pid` holds the number of the
//! process and is locked by it, and the socket is `RUN_DIR/ovs-vswitchd.NUMBER.ctl`.
//!
//! A request is a JSON object `{"method": .., "params": [..], "id": ..}`, and so is its answer, `{"result": .., "error": ..,
//! "id": ..}` (JSON-RPC 1.0), without anything between two of them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_ovs::appctl::{self, Command};
use millrace_ovs::tunnels;
use millrace_ovsdb::Splitter;
use nix::fcntl::{FcntlArg, fcntl};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::switch::Switch;

/// The limits of a request: commands are short.
const REQUEST_SIZE_MAX: usize = 64 << 10;
const REQUEST_DEPTH_MAX: usize = 4;

/// The number of clients that are served at a time. Others wait.
const CLIENTS_MAX: usize = 8;

/// The socket, which is removed with its pidfile when the value is dropped.
pub(crate) struct Unixctl {
    task: tokio::task::JoinHandle<()>,
    /// Holds the lock. Its file is removed first, so that nobody finds one that is not locked.
    _pidfile: File,
    paths: [PathBuf; 2],
}

impl Unixctl {
    /// Opens the socket in a directory, which is made if it is absent.
    ///
    /// # Errors
    /// The file and the reason, such as another process that has the pidfile.
    pub(crate) fn open(run_dir: &Path, switch: Arc<dyn Switch>) -> Result<Unixctl, String> {
        let said = |path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| format!("{path}: {error}")
        };
        std::fs::create_dir_all(run_dir).map_err(said(run_dir))?;
        let number = std::process::id();
        let pid_path = run_dir.join("ovs-vswitchd.pid");
        let pidfile = lock(&pid_path, number).map_err(said(&pid_path))?;
        let path = run_dir.join(format!("ovs-vswitchd.{number}.ctl"));
        // One that is left belonged to an earlier process with this number.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(said(&path)(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(said(&path))?;
        // As that of ovs-vswitchd: who may connect may change the switch.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(said(&path))?;
        Ok(Unixctl {
            task: tokio::spawn(accept(listener, switch)),
            _pidfile: pidfile,
            paths: [pid_path, path],
        })
    }
}

impl Drop for Unixctl {
    fn drop(&mut self) {
        self.task.abort();
        for path in &self.paths {
            // It may be gone with its directory.
            let _gone = std::fs::remove_file(path);
        }
    }
}

/// Writes the number of the process to its file and locks it, as `ovs-appctl` expects it: with the lock of POSIX.
fn lock(path: &Path, number: u32) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    let whole = nix::libc::flock {
        l_type: nix::libc::F_WRLCK as nix::libc::c_short,
        l_whence: nix::libc::SEEK_SET as nix::libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_SETLK(&whole)).map_err(|error| match error {
        nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES => {
            io::Error::other("another process has it: expected no ovs-vswitchd with this run_dir")
        }
        error => error.into(),
    })?;
    file.set_len(0)?;
    writeln!(file, "{number}")?;
    Ok(file)
}

async fn accept(listener: UnixListener, switch: Arc<dyn Switch>) {
    let clients = Arc::new(Semaphore::new(CLIENTS_MAX));
    loop {
        let Ok(client) = Arc::clone(&clients).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let switch = Arc::clone(&switch);
                tokio::spawn(async move {
                    let _client = client;
                    if let Err(reason) = serve(stream, switch).await {
                        tracing::debug!(reason, "a client of ovs-appctl's socket is closed");
                    }
                });
            }
            // Descriptors may be short for a while.
            Err(error) => {
                tracing::warn!(%error, "the socket of ovs-appctl accepts nobody");
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
        }
    }
}

async fn serve(mut stream: UnixStream, switch: Arc<dyn Switch>) -> Result<(), String> {
    let mut splitter = Splitter::new(REQUEST_SIZE_MAX, REQUEST_DEPTH_MAX);
    let mut buffer = [0; 4096];
    loop {
        while let Some(request) = splitter.next_message().map_err(|error| error.to_string())? {
            let switch = Arc::clone(&switch);
            let answer = tokio::task::spawn_blocking(move || answer(&request, &*switch));
            let (answer, ends) = answer.await.map_err(|error| error.to_string())?;
            let text = format!("{answer}\n");
            stream
                .write_all(text.as_bytes())
                .await
                .map_err(|error| error.to_string())?;
            if ends {
                tracing::info!("ovs-appctl asks the process to exit");
                nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM)
                    .map_err(|error| error.to_string())?;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) => return Ok(()),
            Ok(size) => splitter.push(buffer.get(..size).unwrap_or_default()),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Returns the answer to a request, and whether the process is to end.
fn answer(request: &[u8], switch: &dyn Switch) -> (Json, bool) {
    let request: Json = serde_json::from_slice(request).unwrap_or_default();
    let said = request
        .get("method")
        .and_then(Json::as_str)
        .ok_or_else(|| "expected a request with a method".to_owned())
        .and_then(|method| {
            let params = request.get("params").and_then(Json::as_array);
            let texts = params
                .into_iter()
                .flatten()
                .map(|text| text.as_str().map(str::to_owned));
            let arguments: Option<Vec<String>> = texts.collect();
            let arguments = arguments.ok_or_else(|| "expected texts as params".to_owned())?;
            let command = Command::parse(method, &arguments)?;
            Ok((run(&command, switch)?, command == Command::Exit))
        });
    let id = request.get("id").cloned().unwrap_or_default();
    match said {
        Ok((result, ends)) => (json!({"id": id, "result": result, "error": null}), ends),
        // Open vSwitch ends the line.
        Err(error) => (
            json!({"id": id, "result": null, "error": format!("{error}\n")}),
            false,
        ),
    }
}

fn run(command: &Command, switch: &dyn Switch) -> Result<String, String> {
    let missing = || "no such bridge".to_owned();
    let macs = |bridge: &str| switch.macs(bridge).ok_or_else(missing);
    Ok(match command {
        Command::Version => format!("ovs-vswitchd (Millrace) {}\n", switch.state().version),
        Command::List => appctl::list_commands(),
        // The process is asked to end once the answer is sent.
        Command::Exit | Command::LogClose => String::new(),
        Command::FdbShow(bridge) => appctl::fdb(&macs(bridge)?),
        Command::FdbCount(bridge) => {
            let macs = macs(bridge)?;
            format!(
                "Statistics for bridge \"{bridge}\":\n  Current/maximum MAC entries in the table: {}\n  Current static MAC \
                 entries in the table : {}\n",
                macs.len(),
                macs.iter().filter(|entry| entry.is_static).count()
            )
        }
        Command::FdbFlush(Some(bridge)) => match switch.flush_macs(bridge) {
            true => "table successfully flushed\n".to_owned(),
            false => return Err(missing()),
        },
        Command::FdbFlush(None) => {
            for bridge in switch.state().bridges.keys() {
                // A bridge that went away meanwhile has nothing to forget.
                let _gone = switch.flush_macs(bridge);
            }
            "table successfully flushed\n".to_owned()
        }
        Command::FdbAdd {
            bridge,
            port,
            vlan,
            mac,
        } => switch
            .add_mac(bridge, port, *vlan, *mac)
            .map(|()| String::new())?,
        Command::FdbDelete { bridge, vlan, mac } => {
            switch.remove_mac(bridge, *vlan, *mac).map(|()| String::new())?
        }
        Command::LogSet(level) => {
            if let Some(level) = level {
                switch.set_log_level(level);
            }
            String::new()
        }
        Command::Routes => tunnels::routes(&switch.host()),
        Command::Neighbours => tunnels::neighbours(&switch.host()),
        Command::LogList => appctl::log_list(&switch.log_filter()),
        Command::LogReopen => return Err("Logging to file not configured".to_owned()),
        Command::Show(show) => appctl::show(show, &switch.state())?,
    })
}
