//! Tests of the driver against Open vSwitch, which runs in a process of its own with a datapath in user
//! space. Without Open vSwitch, the tests print one line and are skipped.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use millrace_controller::driver::{Config, Listener, Session, Target, listen};
use millrace_controller::{Applied, CommitError, DumpFilter, Event};
use millrace_flow::{Instructions, Match};
use millrace_openflow::flow_monitor::{FlowMonitorFlags, FlowMonitorRequest};
use millrace_openflow::*;
use millrace_types::*;

use crate::millrace::{PATIENCE, group};
use crate::script::{add, added, meter};

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// A daemon that is killed when it is dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

struct OpenVswitch {
    folder: tempfile::TempDir,
    _switchd: Daemon,
    // The database must end after the switch.
    _server: Daemon,
}

impl OpenVswitch {
    /// Starts Open vSwitch with a bridge `br0` and ports `p1` and `p2`. All its files are in `folder`. The bridge
    /// connects to the controller at the socket `br0.controller` in `folder`; Open vSwitch permits no other Unix
    /// socket.
    fn start(folder: tempfile::TempDir) -> Option<OpenVswitch> {
        if !Path::new(SCHEMA).exists() || Command::new("ovs-vswitchd").arg("--version").output().is_err() {
            eprintln!("skipped: Open vSwitch is not installed (apt-get install openvswitch-switch)");
            return None;
        }
        let path = |name: &str| folder.path().join(name);
        run(tool(folder.path(), "ovsdb-tool")
            .arg("create")
            .arg(path("conf.db"))
            .arg(SCHEMA));
        let remote = format!("unix:{}", path("db.sock").display());
        let mut server = tool(folder.path(), "ovsdb-server");
        server.arg(path("conf.db")).arg(format!("--remote=p{remote}"));
        let server = daemon(&mut server, &path("server.ctl"));
        wait_for(&path("db.sock"));
        run(&mut vsctl(folder.path(), &["--no-wait", "init"]));
        let mut switchd = tool(folder.path(), "ovs-vswitchd");
        // The datapath "dummy" needs no privileges and has no devices.
        switchd.args([&remote, "--disable-system", "--enable-dummy"]);
        let switchd = daemon(&mut switchd, &path("switchd.ctl"));
        let target = format!("target=\"unix:{}\"", path("br0.controller").display());
        let settings = "add-br br0 -- set bridge br0 datapath_type=dummy protocols=OpenFlow13 fail_mode=secure \
                        -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
                        -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2 \
                        -- --id=@c create controller connection_mode=out-of-band";
        let mut args: Vec<&str> = settings.split_whitespace().collect();
        args.extend([target.as_str(), "--", "set", "bridge", "br0", "controller=@c"]);
        run(&mut vsctl(folder.path(), &args));
        Some(OpenVswitch {
            folder,
            _switchd: switchd,
            _server: server,
        })
    }

    fn ofctl(&self, args: &[&str]) {
        let target = format!("unix:{}", self.folder.path().join("br0.mgmt").display());
        let mut command = tool(self.folder.path(), "ovs-ofctl");
        run(command
            .args(["-O", "OpenFlow13", args[0], &target])
            .args(&args[1..]));
    }
}

/// Returns a command of Open vSwitch that keeps all its files in `folder`.
fn tool(folder: &Path, name: &str) -> Command {
    let mut command = Command::new(name);
    for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(variable, folder);
    }
    command
}

fn vsctl(folder: &Path, args: &[&str]) -> Command {
    let mut command = tool(folder, "ovs-vsctl");
    let db = format!("--db=unix:{}", folder.join("db.sock").display());
    command.args([&db, "--timeout=20"]).args(args);
    command
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn daemon(command: &mut Command, control: &Path) -> Daemon {
    command.arg(format!("--unixctl={}", control.display()));
    command.args(["-vconsole:emer", "-vsyslog:off"]);
    Daemon(command.stdout(Stdio::null()).spawn().unwrap())
}

fn wait_for(path: &Path) {
    let deadline = Instant::now() + PATIENCE;
    while !path.exists() {
        assert!(Instant::now() < deadline, "waited in vain for {}", path.display());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Returns a listener on a Unix socket, and Open vSwitch with a session there.
async fn connected() -> Option<(Listener, OpenVswitch, Session)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("br0.controller");
    let mut listener = listen(Config::new(Target::Unix(path))).await.unwrap();
    let ovs = tokio::task::spawn_blocking(move || OpenVswitch::start(folder))
        .await
        .unwrap()?;
    let session = tokio::time::timeout(PATIENCE, listener.accept())
        .await
        .unwrap()
        .unwrap();
    Some((listener, ovs, session))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_listings_errors_and_events_work_with_open_vswitch() {
    let Some((_listener, ovs, session)) = connected().await else {
        return;
    };
    let Session {
        handle, mut events, ..
    } = session;
    handle.set_role(RequestedRole::Master, 3).await.unwrap();
    // Open vSwitch refuses meters in bundles. The commit succeeds nevertheless, also after the driver has
    // noticed this.
    let mut messages: Vec<_> = (0..2000).map(add).collect();
    messages.push(meter(4, MeterModCommand::Add));
    messages.push(group(9, 1));
    messages.push(Message::FlowMod(FlowMod {
        instructions: Instructions {
            meter: Some(MeterId(4)),
            ..added(5000).instructions
        },
        ..added(5000)
    }));
    handle.commit(messages).await.unwrap();
    let dump = handle.dump(DumpFilter::ALL).await.unwrap();
    assert_eq!(
        (dump.flows.len(), dump.groups.len(), dump.meters.len()),
        (2001, 1, 1)
    );
    // Ports p1, p2 and the local one.
    assert_eq!(dump.ports.len(), 3);
    assert_eq!(dump.into_entries().unwrap().len(), 2001);

    // The switch refuses one message, and applies nothing of the bundle.
    let delete = Message::FlowMod(FlowMod::delete(TableId::ALL, Match::any()));
    let wrong = Message::FlowMod(FlowMod {
        instructions: Instructions {
            goto_table: Some(TableId(1)),
            ..Instructions::default()
        },
        table: TableId(2),
        ..added(1)
    });
    match handle.commit(vec![delete.clone(), wrong, add(1)]).await {
        Err(CommitError::Refused {
            index: Some(1),
            applied: Applied::Nothing,
            code,
            ..
        }) => {
            assert_eq!(code, ErrorCode::OFPBIC_BAD_TABLE_ID);
        }
        other => panic!("{other:?}"),
    }
    // A message that fails in the commit itself.
    match handle.commit(vec![delete, group(9, 1)]).await {
        Err(CommitError::Refused {
            index: Some(1),
            applied: Applied::Nothing,
            code,
            ..
        }) => {
            assert_eq!(code, ErrorCode::OFPGMFC_GROUP_EXISTS);
        }
        other => panic!("{other:?}"),
    }
    let filter = DumpFilter {
        cookie: Cookie(5000),
        cookie_mask: u64::MAX,
        ..DumpFilter::ALL
    };
    assert_eq!(handle.dump(filter).await.unwrap().flows.len(), 1);
    assert_eq!(handle.dump(DumpFilter::ALL).await.unwrap().flows.len(), 2001);

    // The changes of another controller are events.
    let monitor = FlowMonitorRequest {
        id: 1,
        flags: FlowMonitorFlags::ADD | FlowMonitorFlags::DELETE,
        out_port: PortNo::ANY,
        table: TableId::ALL,
        match_: Match::any(),
    };
    handle.monitor(&[monitor]).await.unwrap();
    tokio::task::spawn_blocking(move || {
        ovs.ofctl(&["add-flow", "table=3,cookie=0x99,actions=drop"]);
        ovs.ofctl(&["mod-port", "p1", "down"]);
        ovs
    })
    .await
    .unwrap();
    let (mut is_flow_seen, mut is_port_seen) = (false, false);
    let wait = async {
        while !(is_flow_seen && is_port_seen) {
            match events.next().await.unwrap() {
                Event::FlowUpdates(updates) => is_flow_seen |= !updates.is_empty(),
                Event::PortStatus(status) => {
                    is_port_seen |= status.port.config.contains(PortConfig::PORT_DOWN);
                }
                _ => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}
