//! Open vSwitch with its user-space datapath, with or without DPDK, started by hand: its database, sockets and
//! logs are in the lab's directory, and the machine's own Open vSwitch, if there is one, is not touched.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::guest;
use crate::launch::{Daemon, Running, launch};
use crate::netns;
use crate::place::Place;
use crate::switch::{Site, listens};
use crate::system::tool;
use crate::topology::{Control, FailMode, OvsPorts, SwitchPort};
use crate::up::UpError;

/// Where Debian's package `openvswitch-common` has the schema of the database.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Where Debian's package `openvswitch-switch-dpdk` has the daemon with DPDK.
const DAEMON_DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
/// DPDK without huge pages, which a lab does not ask for: ordinary memory, MiB, for the pool of packets. Open
/// vSwitch adds `--in-memory` unless it finds `--legacy-mem`, and the former does not go with `--no-huge`.
const DPDK_EXTRA: &str = "--no-pci --no-telemetry --no-huge --legacy-mem -m 1024";

/// Open vSwitch's tools find sockets and files by these (ovs-vswitchd(8)); DPDK keeps its run-time files below
/// the last.
pub(super) fn environment(dir: &Path) -> Vec<(String, String)> {
    [
        "OVS_RUNDIR",
        "OVS_LOGDIR",
        "OVS_DBDIR",
        "OVS_SYSCONFDIR",
        "RUNTIME_DIRECTORY",
    ]
    .map(|key| (key.to_owned(), dir.display().to_string()))
    .into()
}

pub(super) fn start(site: &mut Site<'_>, control: &Control, ports: OvsPorts) -> Result<(), UpError> {
    let (what, program) = match ports {
        OvsPorts::System => ("Open vSwitch, user-space datapath", "ovs-vswitchd"),
        OvsPorts::Dpdk => ("Open vSwitch with DPDK", DAEMON_DPDK),
    };
    site.starting(what);
    let dir = site.dir();
    let (database, socket) = (dir.join("conf.db"), dir.join("db.sock"));
    let remote = format!("unix:{}", socket.display());
    tool(
        &site.journal.state.mark,
        Command::new("ovsdb-tool")
            .arg("create")
            .arg(&database)
            .arg(SCHEMA),
    )?;

    let args = [
        database.into(),
        format!("--remote=punix:{}", socket.display()).into(),
    ];
    let server = daemon(site, "ovsdb-server", "ovsdb-server", &args)?;
    site.wait_for("ovsdb-server", &server, || listens(&socket))?;
    vsctl(site, &remote, &["--no-wait".into(), "init".into()])?;
    if ports == OvsPorts::Dpdk {
        let mut settings = dpdk_settings().to_vec();
        if site.switch.ports.iter().any(|port| port.guest.is_some()) {
            // The pool that ports share otherwise takes all of the memory that there is.
            settings.push("other_config:per-port-memory=true".into());
        }
        vsctl(site, &remote, &settings)?;
    }
    // --disable-system: no kernel datapath, which belongs to the machine and not to this namespace.
    let switchd = daemon(
        site,
        "ovs-vswitchd",
        program,
        &[remote.clone().into(), "--disable-system".into()],
    )?;
    let control_socket = dir.join("ovs-vswitchd.ctl");
    site.wait_for("ovs-vswitchd", &switchd, || listens(&control_socket))?;
    vsctl(site, &remote, &configuration(site, control, ports))?;
    if control.fail_mode == FailMode::Standalone && control.controllers.is_empty() {
        // With a passive connection alone, Open vSwitch has a controller and yet is not a learning switch.
        let target = format!(
            "unix:{}",
            dir.join(format!("{}.mgmt", site.switch.name)).display()
        );
        tool(
            &site.journal.state.mark,
            Command::new("ovs-ofctl").args(["add-flow", &target, "priority=0,actions=NORMAL"]),
        )?;
    }
    Ok(())
}

fn daemon(site: &mut Site<'_>, role: &str, program: &str, args: &[OsString]) -> Result<Running, UpError> {
    let dir = site.dir();
    let control = format!("--unixctl={}", dir.join(format!("{role}.ctl")).display());
    let mut all = args.to_vec();
    all.extend([
        "-vconsole:info".into(),
        "-vsyslog:off".into(),
        "-vfile:off".into(),
        "--no-chdir".into(),
    ]);
    all.push(control.into());
    let environment = environment(&dir);
    let program_path = Path::new(program);
    let daemon = Daemon {
        switch: &site.switch.name,
        role,
        program: program_path,
        args: all,
        environment: &environment,
    };
    Ok(launch(site.journal, &daemon)?)
}

fn vsctl(site: &Site<'_>, remote: &str, args: &[OsString]) -> Result<(), UpError> {
    let timeout = format!("--timeout={}", site.options.ready_within.as_secs().max(1));
    netns::within(&site.namespace(), || {
        tool(
            &site.journal.state.mark,
            Command::new("ovs-vsctl")
                .arg(format!("--db={remote}"))
                .arg(timeout)
                .args(args),
        )
    })?;
    Ok(())
}

/// What must be in the database before a daemon with DPDK starts.
fn dpdk_settings() -> [OsString; 6] {
    [
        "--no-wait".into(),
        "set".into(),
        "Open_vSwitch".into(),
        ".".into(),
        "other_config:dpdk-init=true".into(),
        format!("other_config:dpdk-extra=\"{DPDK_EXTRA}\"").into(),
    ]
}

/// The type and options of the interface at a port.
fn device(place: &Place, ports: OvsPorts, index: usize, port: &SwitchPort) -> String {
    match (ports, &port.guest) {
        (OvsPorts::System, _) => String::new(),
        // As with Millrace, the guest makes the socket.
        (OvsPorts::Dpdk, Some(nic)) => format!(
            " type=dpdkvhostuserclient options:vhost-server-path={}",
            guest::nic_socket(place, &nic.guest, &nic.interface).display()
        ),
        (OvsPorts::Dpdk, None) => format!(
            " type=dpdk options:dpdk-devargs=net_af_packet{index},iface={}",
            port.interface
        ),
    }
}

/// One transaction of `ovs-vsctl` that makes the bridge with everything on it.
fn configuration(site: &Site<'_>, control: &Control, ports: OvsPorts) -> Vec<OsString> {
    let bridge = &site.switch.name;
    let mut text = format!("add-br {bridge} -- set bridge {bridge} datapath_type=netdev");
    let fail_mode = control.fail_mode.word();
    let _ = write!(
        text,
        " fail_mode={fail_mode} other-config:datapath-id={:016x}",
        site.switch.dpid.0
    );
    for (index, port) in site.switch.ports.iter().enumerate() {
        let (interface, number) = (&port.interface, port.number.raw());
        let device = device(site.journal.place(), ports, index, port);
        let _ = write!(
            text,
            " -- add-port {bridge} {interface} -- set interface {interface} ofport_request={number}{device}"
        );
    }
    let targets: Vec<&str> = control
        .controllers
        .iter()
        .chain(&control.listen)
        .map(String::as_str)
        .collect();
    if !targets.is_empty() {
        let _ = write!(text, " -- set-controller {bridge} {}", targets.join(" "));
    }
    text.split(' ').map(OsString::from).collect()
}
