//! A `millraced` of its own, with one bridge.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::guest;
use crate::launch::{Daemon, launch};
use crate::place::Place;
use crate::process;
use crate::program::find_program;
use crate::progress::Progress;
use crate::switch::Site;
use crate::system::SystemError;
use crate::topology::{Control, Device, Switch};
use crate::up::UpError;

/// The Unix socket of the daemon's REST API, below the folder of the switch.
const API: &str = "api.sock";
/// How long the daemon may take to answer when it has accepted a connection.
const ANSWER: Duration = Duration::from_secs(2);
/// More than a status ever has, in octets: the daemon of a lab is trusted, its size is not.
const MAX_ANSWER: u64 = 1 << 20;
/// The daemon's role in the lab, and the name of its log.
const ROLE: &str = "millraced";

/// `millrace` finds the daemon by the first; DPDK keeps its run-time files below the second.
pub(super) fn environment(dir: &Path) -> Vec<(String, String)> {
    let pair = |key: &str, value: String| (key.to_owned(), value);
    vec![
        pair("MILLRACE_API", format!("unix:{}", dir.join(API).display())),
        pair("RUNTIME_DIRECTORY", dir.display().to_string()),
    ]
}

pub(super) fn start(
    site: &mut Site<'_>,
    device: Device,
    control: &Control,
    workers: Option<u16>,
) -> Result<(), UpError> {
    let program = daemon_program(site.options.millraced.as_deref())?;
    let first = if device == Device::Auto {
        Device::Kernel
    } else {
        device
    };
    let reason = match attempt(site, &program, first, control, workers) {
        Err(UpError::Daemon { problem, tail, .. }) if device == Device::Auto => {
            tail.lines().last().map_or(problem, str::to_owned)
        }
        Err(UpError::Degraded { troubles, .. }) if device == Device::Auto => troubles.join("; "),
        result => return result,
    };
    (site.progress)(Progress::Fallback {
        switch: &site.switch.name,
        from_to: (first.word(), Device::AfPacket.word()),
        reason: &reason,
    });
    attempt(site, &program, Device::AfPacket, control, workers)
}

/// Starts the daemon with one kind of device; if it does not come up, ends it.
fn attempt(
    site: &mut Site<'_>,
    program: &Path,
    device: Device,
    control: &Control,
    workers: Option<u16>,
) -> Result<(), UpError> {
    site.starting(&format!("millraced over {}", device.word()));
    let dir = site.dir();
    let path = dir.join("millraced.toml");
    let text = configuration(site.switch, site.journal.place(), device, control, workers);
    fs::write(&path, text).map_err(SystemError::file("write", &path))?;
    let environment = environment(&dir);
    let args: Vec<OsString> = vec!["--config".into(), path.into()];
    let daemon = Daemon {
        switch: &site.switch.name,
        role: ROLE,
        program,
        args,
        environment: &environment,
    };
    let running = launch(site.journal, &daemon)?;
    let api = dir.join(API);
    let ask = || troubles(&api);
    let result = match site.wait_for(ROLE, &running, ask) {
        Ok(troubles) if troubles.is_empty() => Ok(()),
        Ok(troubles) => Err(UpError::Degraded {
            switch: site.switch.name.clone(),
            troubles,
        }),
        Err(error) => Err(error),
    };
    if result.is_err() {
        process::end(&[running.id]);
    }
    result
}

/// The daemon to start: the one given, `$MILLRACED`, or the one that [`find_program`] finds.
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

/// The daemon's configuration. Every value in it is a word, a number, or text that was checked when the lab
/// file was read, so that nothing needs quoting.
fn configuration(
    switch: &Switch,
    place: &Place,
    device: Device,
    control: &Control,
    workers: Option<u16>,
) -> String {
    let dir = place.node(&switch.name);
    let mut text = format!("# Made by `millrace lab up` for switch {}.\n", switch.name);
    // Writing to a string does not fail.
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
    let _ = writeln!(text, "fail_mode = \"{}\"", control.fail_mode.word());
    let _ = writeln!(
        text,
        "controllers = {:?}\nlisten = {:?}",
        control.controllers, control.listen
    );
    for (index, port) in switch.ports.iter().enumerate() {
        let (interface, number) = (&port.interface, port.number.raw());
        let device = match (device, &port.guest) {
            // The switch goes to the guest, so that the guest outlives it.
            (_, Some(nic)) => {
                let socket = guest::nic_socket(place, &nic.guest, &nic.interface);
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

/// What the lab reads of the daemon's status.
#[derive(Deserialize)]
struct Status {
    state: String,
    troubles: Vec<Trouble>,
}

/// Something that does not run as configured.
#[derive(Deserialize)]
struct Trouble {
    subject: String,
    message: String,
    remedy: String,
}

/// What does not run as configured at the daemon behind `api`; `None` while it does not answer, or still works
/// on its configuration.
fn troubles(api: &Path) -> Option<Vec<String>> {
    let answer = get(api, "/api/v1/status").ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    if head.split(' ').nth(1) != Some("200") {
        return None;
    }
    let status: Status = serde_json::from_str(body).ok()?;
    let line = |trouble: Trouble| format!("{}: {} ({})", trouble.subject, trouble.message, trouble.remedy);
    (status.state != "working").then(|| status.troubles.into_iter().map(line).collect())
}

/// The whole answer to an HTTP/1.0 request, which the server ends by closing.
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

    /// The configuration for the first switch of a lab file.
    fn configured(lab: &str, device: Device) -> millrace_model::Config {
        let lab = Topology::parse("lab.toml", lab).unwrap();
        let SwitchKind::Millrace { control, workers, .. } = &lab.switches[0].kind else {
            panic!("kind")
        };
        let text = configuration(&lab.switches[0], &Place::of("x"), device, control, *workers);
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
