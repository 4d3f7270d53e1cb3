//! The same scripts given to the real ovs-vsctl and ovsdb-server: the database that they make gives the same configuration and the
//! same findings as the script itself, and both refuse the same commands.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use millrace_import::ovs;

use crate::is_valid;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Scripts in a run; MILLRACE_SCRIPTS sets another number.
const SCRIPTS: u64 = 4;
const COMMANDS: usize = 25;

/// A running ovsdb-server without a switch.
struct Server {
    folder: tempfile::TempDir,
    process: std::process::Child,
}

impl Server {
    /// Returns a server, or `None` where Open vSwitch is not installed.
    fn start() -> Option<Server> {
        if !Path::new(SCHEMA).exists() {
            eprintln!("skipped: {SCHEMA} is missing (package openvswitch-common)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("conf.db");
        let made = Command::new("ovsdb-tool")
            .arg("create")
            .arg(&file)
            .arg(SCHEMA)
            .status();
        assert!(made.unwrap().success());
        let process = Command::new("ovsdb-server")
            .arg(format!("--remote=punix:{}/s", folder.path().display()))
            .arg(format!("--unixctl={}/c", folder.path().display()))
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server { folder, process };
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while std::os::unix::net::UnixStream::connect(server.folder.path().join("s")).is_err() {
            assert!(std::time::Instant::now() < end, "ovsdb-server does not listen");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(server.run(&["init".to_owned()]).0);
        Some(server)
    }

    /// Runs ovs-vsctl; returns its success and its error.
    fn run(&self, words: &[String]) -> (bool, String) {
        let output = Command::new("ovs-vsctl")
            .arg(format!("--db=unix:{}/s", self.folder.path().display()))
            .args(["--no-wait", "--timeout=60"])
            .args(words)
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("conf.db")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}

/// A generator of numbers (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap()
    }

    fn of<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[usize::try_from(self.next() % items.len() as u64).unwrap()]
    }

    /// Fills `{b}` with a bridge, `{p}` with a port and `{n}` with a small number.
    fn filled(&mut self, pattern: &str) -> String {
        let mut text = pattern.to_owned();
        while let Some(at) = text.find('{') {
            let value = match text.get(at..at + 3) {
                Some("{b}") => self.of(&["br0", "br1", "br2"]).to_owned(),
                Some("{p}") => self.of(&["p1", "p2", "p3", "p4", "p5"]).to_owned(),
                Some("{n}") => (self.next() % 20 + 1).to_string(),
                _ => break,
            };
            text.replace_range(at..at + 3, &value);
        }
        text
    }
}

/// Families of commands: each is filled with names and numbers.
const FAMILIES: [&str; 48] = [
    "add-br {b}",
    "--may-exist add-br {b}",
    "add-br v{n} {b} {n}",
    "--if-exists del-br {b}",
    "add-port {b} {p}",
    "--may-exist add-port {b} {p} tag={n}",
    "add-port {b} {p} -- set Interface {p} type=internal mtu_request=1400",
    "add-port {b} {p} trunks={n},7-9 vlan_mode=trunk",
    "add-port {b} {p} -- set Interface {p} type=vxlan options:remote_ip=192.0.2.1 options:key={n}",
    "add-port {b} {p} -- set Interface {p} type=patch options:peer={p}",
    "add-bond {b} {p} e1 e2 bond_mode=balance-slb",
    "--may-exist add-bond {b} {p} e2 e1",
    "--may-exist add-bond {b} {p} e1 e3",
    "--if-exists del-port {b} {p}",
    "del-port {p}",
    "set-controller {b} tcp:192.0.2.{n}:6653",
    "del-controller {b}",
    "set-fail-mode {b} secure",
    "del-fail-mode {b}",
    "set Bridge {b} other-config:datapath-id=00000000000000{n}",
    "set Bridge {b} stp_enable=yes other_config:stp-priority=4096",
    "set bridge {b} rstp-enable=true",
    "set Bridge {b} protocols=OpenFlow10,OpenFlow13",
    "add Bridge {b} protocols OpenFlow14",
    "remove Bridge {b} protocols OpenFlow10 OpenFlow14",
    "set Bridge {b} flood_vlans=[{n}, 30]",
    "clear Bridge {b} flood_vlans other_config",
    "set Port {p} tag={n}",
    "set port {p} trunks=[1,2] vlan_mode=native-untagged tag={n}",
    "clear Port {p} tag trunks",
    "--if-exists set Port {p} other_config:rstp-port-admin-edge=true",
    "remove Port {p} trunks 1",
    "set Interface {p} ofport_request={n}",
    "set Interface {p} options:a=\"b c\" options:remote_ip=192.0.2.{n}",
    "set interface {p} options={remote_ip=192.0.2.9,key=flow}",
    "set interface {p} options={key=flow,remote_ip=192.0.2.9,key=3}",
    "set Bridge {b} protocols=OpenFlow13,OpenFlow13",
    "remove Interface {p} options key",
    "set Interface {p} ingress_policing_rate={n}000 ingress_policing_burst=100",
    "set Interface {p} mac=\"02:00:00:00:00:01\"",
    "set Interface {p} external_ids:iface-id=x{n}",
    "set Interface {p} bfd:enable=true",
    "-- --id=@q create QoS type=linux-htb other-config:max-rate={n}000000 queues:{n}=@k -- --id=@k create Queue other-config:min-rate={n}0000 -- set Port {p} qos=@q",
    "clear Port {p} qos",
    "-- --id=@s create sFlow agent=eth0 target=\"192.0.2.9:6343\" sampling=64 -- set Bridge {b} sflow=@s",
    "-- --id=@p get Port {p} -- --id=@m create Mirror name=m{n} select-all=true output-port=@p -- set Bridge {b} mirrors=@m",
    "set-ssl /k.pem /c.pem /ca.pem",
    "set Bridge {b} nonsense=1",
];

/// Splits a command without the rules of a shell: the patterns have quotes only around texts for ovs-vsctl.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut depth = 0_i32;
    let mut word = String::new();
    for char in command.chars() {
        depth += i32::from(matches!(char, '[' | '{')) - i32::from(matches!(char, ']' | '}'));
        match char {
            '"' => {
                depth = i32::from(depth == 0);
                word.push(char);
            }
            ' ' if depth == 0 => words.push(std::mem::take(&mut word)),
            char => word.push(char),
        }
    }
    words.push(word);
    words
}

/// Returns a word as a shell reads it back.
fn quoted(word: &str) -> String {
    format!("'{word}'")
}

#[test]
fn a_script_and_the_database_that_ovs_vsctl_makes_of_it_give_the_same_configuration() {
    let scripts = std::env::var("MILLRACE_SCRIPTS")
        .ok()
        .and_then(|text| text.parse().ok());
    let mut accepted = 0;
    for seed in 0..scripts.unwrap_or(SCRIPTS) {
        let Some(server) = Server::start() else {
            return;
        };
        let mut random = Random(seed);
        let mut script = String::new();
        let mut lines = Vec::new();
        for bridge in ["add-br br0", "add-br br1"].into_iter().map(str::to_owned) {
            lines.push(bridge);
        }
        for _ in 0..COMMANDS {
            let family = FAMILIES[usize::try_from(random.next() % FAMILIES.len() as u64).unwrap()];
            lines.push(random.filled(family));
        }
        let mut refused = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let words = words(line);
            let (is_done, error) = server.run(&words);
            if !is_done {
                refused.push((index + 1, error));
            }
            let line: Vec<_> = words.iter().map(|word| quoted(word)).collect();
            script += &format!("ovs-vsctl {}\n", line.join(" "));
        }
        let of_script = ovs::read("s.sh", script.as_bytes()).unwrap();
        let of_database = ovs::read("conf.db", &std::fs::read(server.file()).unwrap()).unwrap();
        is_valid(&of_script);
        is_valid(&of_database);
        let left_out: Vec<usize> = of_script
            .findings
            .iter()
            .filter(|finding| finding.text.starts_with("the command is left out"))
            .filter_map(|finding| finding.place.rsplit(':').next()?.parse().ok())
            .collect();
        let refused_lines: Vec<usize> = refused.iter().map(|(line, _)| *line).collect();
        assert_eq!(
            left_out, refused_lines,
            "seed {seed}\n{refused:#?}\n{:#?}\n{script}",
            of_script.findings
        );
        accepted += lines.len() - refused.len();
        assert_eq!(
            of_script.config.to_toml(),
            of_database.config.to_toml(),
            "seed {seed}\n{script}"
        );
        let mut texts: Vec<_> = of_script
            .findings
            .iter()
            .filter(|finding| !finding.text.starts_with("the command is left out"))
            .map(|finding| without_uuid(&finding.text))
            .collect();
        let mut of_file: Vec<_> = of_database
            .findings
            .iter()
            .map(|finding| without_uuid(&finding.text))
            .collect();
        texts.sort();
        texts.dedup();
        of_file.sort();
        of_file.dedup();
        assert_eq!(texts, of_file, "seed {seed}\n{script}");
    }
    assert!(accepted > 20, "the real ovs-vsctl accepts commands: {accepted}");
}

/// Returns a text without UUIDs, which differ.
fn without_uuid(text: &str) -> String {
    let is_uuid = |word: &&str| word.len() >= 36 && word.bytes().filter(|byte| *byte == b'-').count() == 4;
    text.split(' ')
        .filter(|word| !is_uuid(word))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn a_database_that_is_cut_off_gives_what_is_before_and_says_so() {
    let Some(server) = Server::start() else {
        return;
    };
    for line in ["add-br br0", "add-port br0 eth1", "add-port br0 eth2"] {
        assert!(server.run(&words(line)).0);
    }
    let bytes = std::fs::read(server.file()).unwrap();
    let cut = ovs::read("conf.db", &bytes[..bytes.len() - 5]).unwrap();
    let text = cut.config.to_toml();
    assert!(text.contains("kernel:eth1") && !text.contains("eth2"), "{text}");
    assert!(cut.differs() && cut.to_toml("x").contains("the rest of the file is left out"));
}
