//! A switch with its own `millraced`, with one bridge.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::context::SwitchContext;
use crate::directory::LabDirectory;
use crate::guest;
use crate::launch::{Daemon, launch};
use crate::process;
use crate::program::find_program;
use crate::progress::Progress;
use crate::system::SystemError;
use crate::topology::{Control, Device, Switch};
use crate::up::UpError;

/// The file name of the daemon's REST socket in the directory of the switch.
const API: &str = "api.sock";
/// The time limit of an answer after the daemon has accepted a connection.
const ANSWER: Duration = Duration::from_secs(2);
/// The size limit of an answer in bytes, far above the size of a status.
const MAX_ANSWER: u64 = 1 << 20;
/// The daemon's role in the lab, and the name of its log.
const ROLE: &str = "millraced";

/// Returns the environment of commands. The first variable is the socket for `millrace`. The second is the
/// directory below which DPDK keeps its run-time files.
pub(super) fn environment(dir: &Path) -> Vec<(String, String)> {
    let pair = |key: &str, value: String| (key.to_owned(), value);
    vec![
        pair("MILLRACE_API", format!("unix:{}", dir.join(API).display())),
        pair("RUNTIME_DIRECTORY", dir.display().to_string()),
    ]
}

pub(super) fn start(
    context: &mut SwitchContext<'_>,
    device: Device,
    control: &Control,
    workers: Option<u16>,
) -> Result<(), UpError> {
    let program = daemon_program(context.options.millraced.as_deref())?;
    let first = if device == Device::Auto {
        Device::Kernel
    } else {
        device
    };
    let reason = match attempt(context, &program, first, control, workers) {
        Err(UpError::Daemon { problem, tail, .. }) if device == Device::Auto => {
            tail.lines().last().map_or(problem, str::to_owned)
        }
        Err(UpError::Degraded { problems, .. }) if device == Device::Auto => problems.join("; "),
        result => return result,
    };
    (context.progress)(Progress::Fallback {
        switch: &context.switch.name,
        from_to: (first.keyword(), Device::AfPacket.keyword()),
        reason: &reason,
    });
    attempt(context, &program, Device::AfPacket, control, workers)
}

/// Starts the daemon with one type of device; terminates it if it does not become ready.
fn attempt(
    context: &mut SwitchContext<'_>,
    program: &Path,
    device: Device,
    control: &Control,
    workers: Option<u16>,
) -> Result<(), UpError> {
    context.starting(&format!("millraced over {}", device.keyword()));
    let dir = context.dir();
    let path = dir.join("millraced.toml");
    let text = configuration(
        context.switch,
        context.journal.directory(),
        device,
        control,
        workers,
    );
    fs::write(&path, text).map_err(SystemError::file("write", &path))?;
    let environment = environment(&dir);
    let args: Vec<OsString> = vec!["--config".into(), path.into()];
    let daemon = Daemon {
        switch: &context.switch.name,
        role: ROLE,
        program,
        args,
        environment: &environment,
    };
    let running = launch(context.journal, &daemon)?;
    let api = dir.join(API);
    let ask = || problems(&api);
    let result = match context.wait_for(ROLE, &running, ask) {
        Ok(problems) if problems.is_empty() => Ok(()),
        Ok(problems) => Err(UpError::Degraded {
            switch: context.switch.name.clone(),
            problems,
        }),
        Err(error) => Err(error),
    };
    if result.is_err() {
        process::end(&[running.id]);
    }
    result
}

/// Returns the daemon to start: the given program, `$MILLRACED`, or the program that [`find_program`] finds.
fn daemon_program(given: Option<&Path>) -> Result<PathBuf, UpError> {
    if let Some(path) = given
        .map(Path::to_owned)
        .or_else(|| std::env::var_os("MILLRACED").map(PathBuf::from))
    {
        let looked = format!("at {}", path.display());
        return if path.is_file() {
            Ok(path)
        } else {
            Err(UpError::NoDaemon { looked })
        };
    }
    find_program(ROLE).ok_or_else(|| {
        let own = std::env::current_exe().unwrap_or_default();
        let looked = format!(
            "beside {}, in the sbin beside its folder or in $PATH",
            own.display()
        );
        UpError::NoDaemon { looked }
    })
}

/// Returns the daemon's configuration. Every value in it is a word, a number, or text that was checked by the parser
/// of lab files, so that no quoting is needed.
fn configuration(
    switch: &Switch,
    directory: &LabDirectory,
    device: Device,
    control: &Control,
    workers: Option<u16>,
) -> String {
    let dir = directory.node(&switch.name);
    let mut text = format!("# Made by `millrace lab up` for switch {}.\n", switch.name);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "[system]\nstate_dir = \"{}\"", dir.join("state").display());
    if let Some(workers) = workers {
        let _ = writeln!(text, "workers = {workers}");
    }
    let _ = writeln!(text, "\n[api]\nsocket = \"{}\"", dir.join(API).display());
    let _ = writeln!(
        text,
        "\n[[bridge]]\nname = \"{}\"\ndpid = \"{:016x}\"",
        switch.name, switch.dpid.0
    );
    let _ = writeln!(text, "fail_mode = \"{}\"", control.fail_mode.keyword());
    let _ = writeln!(
        text,
        "controllers = {:?}\nlisten = {:?}",
        control.controllers, control.listen
    );
    for (index, port) in switch.ports.iter().enumerate() {
        let (interface, number) = (&port.interface, port.number.raw());
        let device = match (device, &port.guest) {
            // The switch connects to the guest's socket, so that the guest outlives the switch.
            (_, Some(nic)) => {
                let socket = guest::nic_socket(directory, &nic.guest, &nic.interface);
                let tso = if nic.tso { ",tso=on" } else { "" };
                format!("vhost:{},role=client{tso}", socket.display())
            }
            (Device::AfPacket, None) => format!("net_af_packet{index},iface={interface}"),
            (Device::Kernel | Device::Auto, None) => format!("kernel:{interface}"),
            (Device::AfXdp, None) => {
                format!("net_af_xdp{index},iface={interface},start_queue=0")
            }
        };
        let _ = writeln!(
            text,
            "\n[[bridge.port]]\nname = \"{interface}\"\nnumber = {number}"
        );
        let _ = writeln!(text, "device = \"{device}\"\nmtu = {}", port.mtu);
    }
    text
}

/// The fields of the daemon's status that the lab reads.
#[derive(Deserialize)]
struct Status {
    state: String,
    problems: Vec<StatusProblem>,
}

/// A part of the configuration that does not run.
#[derive(Deserialize)]
struct StatusProblem {
    subject: String,
    message: String,
    next_step: String,
}

/// Returns the problems of the daemon behind `api`; `None` while it does not answer, or still applies its
/// configuration.
fn problems(api: &Path) -> Option<Vec<String>> {
    let answer = get(api, "/api/v1/status").ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    if head.split(' ').nth(1) != Some("200") {
        return None;
    }
    let status: Status = serde_json::from_str(body).ok()?;
    let line =
        |problem: StatusProblem| format!("{}: {} ({})", problem.subject, problem.message, problem.next_step);
    (status.state != "working").then(|| status.problems.into_iter().map(line).collect())
}

/// Returns the complete answer to an HTTP/1.0 request; the server closes the connection at its end.
fn get(api: &Path, path: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(api)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{SwitchKind, Topology};

    /// Returns the configuration of the first switch of a lab file.
    fn configured(lab: &str, device: Device) -> millrace_model::Config {
        let lab = Topology::parse("lab.toml", lab).unwrap();
        let SwitchKind::Millrace { control, workers, .. } = &lab.switches[0].kind else {
            panic!("kind")
        };
        let text = configuration(
            &lab.switches[0],
            &LabDirectory::of("x"),
            device,
            control,
            *workers,
        );
        millrace_model::Config::from_toml("millraced.toml", &text)
            .map_err(|errors| format!("{errors}\n{text}"))
            .unwrap()
    }

    #[test]
    fn the_daemon_reads_what_the_lab_writes_and_every_key_arrives() {
        let lab = "
            name = \"lab\"
            [[host]]
            name = \"h1\"
            mtu = 1400
            [[switch]]
            name = \"br0\"
            kind = \"millrace\"
            workers = 2
            fail_mode = \"secure\"
            controllers = [\"tcp:10.0.0.9:6653\"]
            listen = [\"ptcp:6654:127.0.0.1\"]
            [[link]]
            ends = [\"h1\", \"br0:7\"]";
        let config = configured(lab, Device::AfPacket);
        let bridge = &config.bridges[0];
        assert_eq!((config.system.worker_count(), config.api.listen), (2, None));
        assert!(config.api.socket.as_str().ends_with("/br0/api.sock"));
        assert_eq!((bridge.name.as_str(), bridge.datapath_id().0), ("br0", 1));
        assert_eq!(bridge.fail_mode.as_str(), "secure");
        assert_eq!(bridge.controllers[0].target.to_string(), "tcp:10.0.0.9:6653");
        assert_eq!(bridge.listen[0].target.to_string(), "ptcp:6654:127.0.0.1");
        let port = bridge.port("h1").unwrap();
        assert_eq!((port.number.raw(), port.mtu.frame_size()), (7, 1422));
        assert_eq!(port.device.to_string(), "net_af_packet0,iface=h1");
        let config = configured(lab, Device::Auto);
        assert_eq!(config.bridges[0].ports[0].device.to_string(), "kernel:h1");
        let config = configured(lab, Device::AfXdp);
        assert_eq!(
            config.bridges[0].ports[0].device.to_string(),
            "net_af_xdp0,iface=h1,start_queue=0"
        );
    }
}
