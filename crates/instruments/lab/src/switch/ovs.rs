//! Open vSwitch with its user-space datapath, with or without DPDK. Its database, sockets and logs are in the lab's
//! directory, and the machine's own Open vSwitch, if there is one, is not changed.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use super::context::{SwitchContext, listens};
use crate::directory::LabDirectory;
use crate::guest;
use crate::launch::{Daemon, Running, launch};
use crate::netns;
use crate::system::tool;
use crate::topology::{Control, FailMode, OvsPorts, SwitchPort};
use crate::up::UpError;

/// The database schema in Debian's package `openvswitch-common`.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// The daemon with DPDK in Debian's package `openvswitch-switch-dpdk`.
const DAEMON_DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
/// The EAL arguments. A lab needs no huge pages, so packets are in ordinary memory of this many MiB. Open
/// vSwitch adds `--in-memory` unless it finds `--legacy-mem`, and `--in-memory` conflicts with `--no-huge`.
const DPDK_EXTRA: &str = "--no-pci --no-telemetry --no-huge --legacy-mem -m 1024";

/// Returns the environment by which Open vSwitch's tools find sockets and files (ovs-vswitchd(8)). The last
/// variable is the directory below which DPDK keeps its run-time files.
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

pub(super) fn start(
    context: &mut SwitchContext<'_>,
    control: &Control,
    ports: OvsPorts,
) -> Result<(), UpError> {
    let (what, program) = match ports {
        OvsPorts::System => ("Open vSwitch, user-space datapath", "ovs-vswitchd"),
        OvsPorts::Dpdk => ("Open vSwitch with DPDK", DAEMON_DPDK),
    };
    context.starting(what);
    let dir = context.dir();
    let (database, socket) = (dir.join("conf.db"), dir.join("db.sock"));
    let remote = format!("unix:{}", socket.display());
    tool(
        &context.journal.state.mark,
        Command::new("ovsdb-tool")
            .arg("create")
            .arg(&database)
            .arg(SCHEMA),
    )?;

    let args = [
        database.into(),
        format!("--remote=punix:{}", socket.display()).into(),
    ];
    let server = daemon(context, "ovsdb-server", "ovsdb-server", &args)?;
    context.wait_for("ovsdb-server", &server, || listens(&socket))?;
    vsctl(context, &remote, &["--no-wait".into(), "init".into()])?;
    if ports == OvsPorts::Dpdk {
        let mut settings = dpdk_settings().to_vec();
        if context.switch.ports.iter().any(|port| port.guest.is_some()) {
            // Without this setting, the pool that ports share takes all of the memory.
            settings.push("other_config:per-port-memory=true".into());
        }
        vsctl(context, &remote, &settings)?;
    }
    // --disable-system: no kernel datapath, because the kernel datapath belongs to the machine and not to
    // this namespace.
    let switchd = daemon(
        context,
        "ovs-vswitchd",
        program,
        &[remote.clone().into(), "--disable-system".into()],
    )?;
    let control_socket = dir.join("ovs-vswitchd.ctl");
    context.wait_for("ovs-vswitchd", &switchd, || listens(&control_socket))?;
    vsctl(context, &remote, &configuration(context, control, ports))?;
    if control.fail_mode == FailMode::Standalone && control.controllers.is_empty() {
        // If it has only a passive connection, Open vSwitch assumes a controller and does not act as a
        // learning switch.
        let target = format!(
            "unix:{}",
            dir.join(format!("{}.mgmt", context.switch.name)).display()
        );
        tool(
            &context.journal.state.mark,
            Command::new("ovs-ofctl").args(["add-flow", &target, "priority=0,actions=NORMAL"]),
        )?;
    }
    Ok(())
}

fn daemon(
    context: &mut SwitchContext<'_>,
    role: &str,
    program: &str,
    args: &[OsString],
) -> Result<Running, UpError> {
    let dir = context.dir();
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
        switch: &context.switch.name,
        role,
        program: program_path,
        args: all,
        environment: &environment,
    };
    Ok(launch(context.journal, &daemon)?)
}

fn vsctl(context: &SwitchContext<'_>, remote: &str, args: &[OsString]) -> Result<(), UpError> {
    let timeout = format!("--timeout={}", context.options.ready_within.as_secs().max(1));
    netns::within(&context.namespace(), || {
        tool(
            &context.journal.state.mark,
            Command::new("ovs-vsctl")
                .arg(format!("--db={remote}"))
                .arg(timeout)
                .args(args),
        )
    })?;
    Ok(())
}

/// Returns the database settings that a daemon with DPDK needs before its start.
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

/// Returns the type and options of the interface at a port.
fn device(directory: &LabDirectory, ports: OvsPorts, index: usize, port: &SwitchPort) -> String {
    match (ports, &port.guest) {
        (OvsPorts::System, _) => String::new(),
        // As with Millrace, the guest creates the socket.
        (OvsPorts::Dpdk, Some(nic)) => format!(
            " type=dpdkvhostuserclient options:vhost-server-path={}",
            guest::nic_socket(directory, &nic.guest, &nic.interface).display()
        ),
        (OvsPorts::Dpdk, None) => format!(
            " type=dpdk options:dpdk-devargs=net_af_packet{index},iface={}",
            port.interface
        ),
    }
}

/// Returns one `ovs-vsctl` transaction that creates the bridge with its ports and settings.
fn configuration(context: &SwitchContext<'_>, control: &Control, ports: OvsPorts) -> Vec<OsString> {
    let bridge = &context.switch.name;
    let mut text = format!("add-br {bridge} -- set bridge {bridge} datapath_type=netdev");
    let fail_mode = control.fail_mode.keyword();
    let _ = write!(
        text,
        " fail_mode={fail_mode} other-config:datapath-id={:016x}",
        context.switch.dpid.0
    );
    for (index, port) in context.switch.ports.iter().enumerate() {
        let (interface, number) = (&port.interface, port.number.raw());
        let device = device(context.journal.directory(), ports, index, port);
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
