//! FRR and BIRD as peers: zebra, staticd and bgpd in one namespace, BIRD in another, and a BGP session between them. The tests
//! need the packages frr and bird2 (scripts/setup.sh routers); without them they print a line and pass.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use millrace_fib::Family;
use millrace_netlink::{Fpm, Kernel, Settings};
use millrace_rib::event::{Change, Hops, NextHopObjectKind};

use crate::bed::{
    ALL_DUMPS, Consumer, Key, NETNS, Neighbour, apart, batch, dump, open, prefix, run, wait_for,
};

const ZEBRA: &str = "/usr/lib/frr/zebra";
const MAIN: u32 = 254;
/// The origins of routes: `RTPROT_BIRD`, `RTPROT_BGP`, and zebra's of static routes.
const OF_BIRD: u8 = 12;
const OF_BGP: u8 = 186;
const OF_STATICD: u8 = 196;
/// staticd 8.4.4 checks its whole configuration after each line of its file: a thousand lines take minutes.
const STATIC_ROUTES: usize = 20;
const BGP_ROUTES: usize = 10_000;

/// A daemon that ends with the test.
struct Daemon(Child);

impl Daemon {
    fn start(folder: &Path, program: &str, arguments: &[&str]) -> Daemon {
        let name = Path::new(program).file_name().unwrap().to_str().unwrap();
        let log = File::options()
            .create(true)
            .append(true)
            .open(folder.join(format!("{name}.log")))
            .unwrap();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        Daemon(command.spawn().unwrap())
    }

    /// Ends the daemon as a crash does.
    fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ended = self.0.kill();
        self.0.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

struct Frr {
    folder: tempfile::TempDir,
}

impl Frr {
    fn new() -> Frr {
        let folder = tempfile::tempdir().unwrap();
        // FRR's daemons run as a user of their own.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        Frr { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn start(&self, program: &str, config: &str, more: &[&str]) -> Daemon {
        let path = self.path(&format!("{program}.conf"));
        fs::write(&path, format!("log stdout\n{config}")).unwrap();
        let (socket, pid, folder) = (
            self.path("zserv"),
            self.path(&format!("{program}.pid")),
            self.path(""),
        );
        let mut arguments = vec![
            "-f",
            &path,
            "-z",
            &socket,
            "-i",
            &pid,
            "--vty_socket",
            &folder,
            "-P",
            "0",
        ];
        arguments.extend(more);
        Daemon::start(self.folder.path(), &format!("/usr/lib/frr/{program}"), &arguments)
    }

    fn zebra(&self) -> Daemon {
        let socket = PathBuf::from(self.path("zserv"));
        let _left = fs::remove_file(&socket);
        let zebra = self.start(
            "zebra",
            "fpm address 127.0.0.1 port 2620\n",
            &["-M", "dplane_fpm_nl"],
        );
        wait_for("zebra listens", || socket.exists());
        zebra
    }

    fn configure(&self, lines: &[&str]) {
        let folder = self.path("");
        let mut arguments = vec!["--vty_socket", &folder, "-c", "configure terminal"];
        for line in lines {
            arguments.extend(["-c", line]);
        }
        run("vtysh", &arguments);
    }
}

fn static_routes() -> String {
    (0..STATIC_ROUTES).fold(String::new(), |mut lines, number| {
        let _written = writeln!(
            lines,
            "ip route 20.{}.{}.0/24 10.0.0.2",
            number / 256,
            number % 256
        );
        lines
    })
}

fn bird_config(folder: &Path) -> String {
    let routes = |format: fn(usize) -> String| -> String {
        (0..BGP_ROUTES)
            .map(|number| format!("route {} blackhole; ", format(number)))
            .collect()
    };
    format!(
        "log \"{}/bird.log\" all;\nrouter id 10.0.0.2;\nprotocol device {{}}\n\
         protocol static static4 {{ ipv4; {} }}\nprotocol static static6 {{ ipv6; {} }}\n\
         protocol kernel kernel4 {{ ipv4 {{ import none; export all; }}; }}\n\
         protocol kernel kernel6 {{ ipv6 {{ import none; export all; }}; }}\n\
         protocol bgp frr {{ local 10.0.0.2 as 65002; neighbor 10.0.0.1 as 65001; connect delay time 1; error wait time 1, 2;\n\
           ipv4 {{ import none; export all; next hop self; }};\n\
           ipv6 {{ import none; export all; next hop address 2001:db8::2; }}; }}\n",
        folder.display(),
        routes(|number| format!("30.{}.{}.0/24", number / 256, number % 256)),
        routes(|number| format!("2001:db8:{:x}::/48", number + 0x1000)),
    )
}

const BGPD: &str = "router bgp 65001\n no bgp ebgp-requires-policy\n neighbor 10.0.0.2 remote-as 65002\n\
    neighbor 10.0.0.2 timers connect 1\n address-family ipv6 unicast\n  neighbor 10.0.0.2 activate\n exit-address-family\n";

/// Returns the routes of FRR's daemons, which FPM and the kernel tell alike.
fn of_frr(consumer: &Consumer) -> BTreeSet<(Key, String)> {
    let routes = consumer
        .routes
        .iter()
        .filter(|(_, route)| matches!(route.protocol, OF_BGP | OF_STATICD));
    routes
        .map(|(key, route)| (*key, format!("{:?} {:?}", route.kind, route.hops)))
        .collect()
}

fn is_whole(consumer: &Consumer) -> bool {
    consumer.count(MAIN, Family::V4, OF_STATICD) == STATIC_ROUTES
        && consumer.count(MAIN, Family::V4, OF_BGP) == BGP_ROUTES
        && consumer.count(MAIN, Family::V6, OF_BGP) == BGP_ROUTES
}

#[test]
fn tables_of_frr_and_bird_arrive_whole_by_fpm_and_by_netlink_also_after_a_crash_of_zebra() {
    if !Path::new(ZEBRA).exists() || !Path::new("/usr/sbin/bird").exists() {
        eprintln!("SKIPPED: FRR or BIRD is not installed: scripts/setup.sh routers");
        return;
    }
    let Some(namespace) = apart() else {
        return;
    };
    batch("link add a0 type veth peer name b0\n");
    let host = Neighbour::start(
        "b0",
        "address add 10.0.0.2/24 dev b0\naddress add 2001:db8::2/64 dev b0 nodad\nlink set b0 up\n",
    );
    batch("address add 10.0.0.1/24 dev a0\naddress add 2001:db8::1/64 dev a0 nodad\nlink set a0 up\n");

    let mut of_bird = Consumer::new(100);
    let bird_kernel = Kernel::open(
        NETNS,
        &host.namespace,
        Settings::default(),
        of_bird.sender.clone(),
    )
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (config, control) = (folder.path().join("bird.conf"), folder.path().join("control"));
    fs::write(&config, bird_config(folder.path())).unwrap();
    let path = folder.path().to_owned();
    let _bird = host.on(move || {
        let arguments = [
            "-f",
            "-c",
            config.to_str().unwrap(),
            "-s",
            control.to_str().unwrap(),
        ];
        Daemon::start(&path, "bird", &arguments)
    });
    of_bird.until("the routes of BIRD are in its kernel", |consumer| {
        consumer.count(MAIN, Family::V4, OF_BIRD) == BGP_ROUTES
            && consumer.count(MAIN, Family::V6, OF_BIRD) == BGP_ROUTES
    });
    assert_eq!(bird_kernel.status().overruns, 0);

    let (mut by_fpm, mut by_kernel) = (Consumer::new(100), Consumer::new(100));
    let kernel = open(&namespace, &by_kernel);
    let fpm = Fpm::open(
        NETNS,
        &namespace,
        "127.0.0.1:2620".parse().unwrap(),
        by_fpm.sender.clone(),
    )
    .unwrap();
    let frr = Frr::new();
    let zebra = frr.zebra();
    let staticd = frr.start("staticd", &static_routes(), &[]);
    let bgpd = frr.start("bgpd", BGPD, &[]);
    by_fpm.until("FPM sends the whole table", is_whole);
    by_kernel.until("the kernel has the whole table", is_whole);
    assert_eq!(of_frr(&by_fpm), of_frr(&by_kernel));
    assert_eq!(by_fpm.changes.first(), Some(&Change::Opened));

    // A second gateway makes a group of the next hop, of both sources the same.
    frr.configure(&["ip route 20.0.0.0/24 10.0.0.3"]);
    for consumer in [&mut by_fpm, &mut by_kernel] {
        consumer.until("the route has a group of two", |consumer| {
            let Some(route) = consumer.routes.get(&(MAIN, prefix("20.0.0.0/24"), 20)) else {
                return false;
            };
            let Hops::Object(id) = route.hops else {
                return false;
            };
            let Some(NextHopObjectKind::Group(members)) = consumer.nexthops.get(&id) else {
                return false;
            };
            let gateways: BTreeSet<String> = members
                .iter()
                .filter_map(|(id, _)| match consumer.nexthops.get(id) {
                    Some(NextHopObjectKind::Hop(hop)) => hop.gateway.map(|gateway| gateway.to_string()),
                    _ => None,
                })
                .collect();
            gateways == BTreeSet::from(["10.0.0.2".to_owned(), "10.0.0.3".to_owned()])
        });
    }
    by_fpm.take();

    zebra.kill();
    by_fpm.until_change("the session ended", |change| *change == Change::Closed);
    by_fpm.take();
    by_fpm.clear();
    // FRR's watchfrr starts all daemons again if zebra ends: bgpd tells a new zebra only a part of its routes.
    drop((staticd, bgpd));
    let _zebra = frr.zebra();
    let _staticd = frr.start("staticd", &static_routes(), &[]);
    let _bgpd = frr.start("bgpd", BGPD, &[]);
    by_fpm.until("zebra is back, and sends all again", is_whole);
    assert_eq!(by_fpm.changes.first(), Some(&Change::Opened));
    assert_eq!(fpm.status().sessions, 2);
    // A dump finds the same as the notifications.
    by_kernel.until("the kernel has the whole table again", is_whole);
    wait_for("FPM and the kernel tell the same", || {
        by_fpm.poll();
        by_kernel.poll();
        of_frr(&by_fpm) == of_frr(&by_kernel)
    });
    dump(&kernel, &mut by_kernel, &ALL_DUMPS);
    assert_eq!(of_frr(&by_fpm), of_frr(&by_kernel));
    for status in [fpm.status(), kernel.status()] {
        assert_eq!((status.ignored.malformed, status.overruns), (0, 0), "{status:?}");
    }
}
