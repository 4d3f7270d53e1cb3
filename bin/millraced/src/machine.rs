//! Check of a configuration against the machine: cores, memory, files, and the resources of the REST API.
//!
//! `--check` tests everything. For a change of a running switch, only the settings that the next start uses are
//! tested, so that the next start does not fail; the switch tests the other settings itself and reports problems.

mod devices;
mod fault;
mod files;

use std::collections::BTreeSet;
use std::time::SystemTime;

use fault::note;
use millrace_agent::channel::invalid_certificates;
use millrace_model::{Api, Config, ConfigError, ConfigErrors, Path, System};

/// The resources of the machine at the start of this process.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// The cores that workers can be bound to; `None` if the system does not report them: no core is rejected then.
    cores: Option<BTreeSet<usize>>,
    /// The memory of the machine in MiB; `None` if DPDK, which allocates `system.memory_mib`, is not used.
    memory_mib: Option<u64>,
}

impl Machine {
    /// Reads the resources of the machine. To be called before any thread is bound to a core.
    pub(crate) fn detect(no_dpdk: bool) -> Machine {
        let cores: BTreeSet<usize> = usable_cores(no_dpdk).into_iter().collect();
        Machine {
            cores: (!cores.is_empty()).then_some(cores),
            memory_mib: memory_mib(no_dpdk),
        }
    }

    /// Tests all resources that `config` names; `state_dir` is the directory of `--state-dir`, which overrides that of
    /// the configuration.
    ///
    /// # Errors
    /// All missing or unusable resources.
    pub(crate) fn check(
        &self,
        config: &Config,
        state_dir: Option<&std::path::Path>,
    ) -> Result<(), ConfigErrors> {
        let mut errors = self.cores(config);
        errors.extend(self.memory(config));
        if state_dir.is_none() {
            errors.extend(store(config));
        }
        errors.extend(files::check(config));
        errors.extend(devices::check(config, &devices::Kernel::this()));
        let state_dir = state_dir.unwrap_or(&config.system.state_dir);
        // The switch may be running with this configuration, so its own address in use is no error.
        errors.extend(api(&config.api, state_dir, &config.api));
        ConfigErrors::unless_empty(errors)
    }

    /// Tests a change of a running switch. Settings that are equal in `head` are not tested, so that a removed file
    /// does not prevent other corrections. `running` is the configuration at the start of the process, whose API
    /// address is in use by the process itself; `state_dir` is the directory of its store.
    pub(crate) fn check_change(
        &self,
        config: &Config,
        head: &Config,
        running: &Config,
        state_dir: &std::path::Path,
    ) -> Result<(), ConfigErrors> {
        let mut errors = Vec::new();
        if config.system.worker_cores != head.system.worker_cores {
            errors.extend(self.cores(config));
        }
        if config.system.memory_mib != head.system.memory_mib {
            errors.extend(self.memory(config));
        }
        if config.system.state_dir != head.system.state_dir {
            errors.extend(moved_store(config, state_dir));
        }
        if config.api != head.api {
            errors.extend(api(&config.api, state_dir, &running.api));
        }
        ConfigErrors::unless_empty(errors)
    }

    fn memory(&self, config: &Config) -> Option<ConfigError> {
        let (total, wanted) = (self.memory_mib?, u64::from(config.system.memory_mib.get()));
        let message = format!("{wanted} MiB are configured, but this machine has {total} MiB");
        let path = Path::default().key("system").key("memory_mib");
        (wanted > total).then(|| ConfigError::unavailable(path, message))
    }

    fn cores(&self, config: &Config) -> Vec<ConfigError> {
        let Some(usable) = &self.cores else {
            return Vec::new();
        };
        let list = Path::default().key("system").key("worker_cores");
        let cores = config.system.worker_cores.iter().enumerate();
        let missing = cores.filter(|(_, core)| !usable.contains(&usize::from(core.get())));
        let error = |(at, core)| {
            let message = format!(
                "there is no core {core} that this process may use: expected one of {}",
                ranges(usable)
            );
            ConfigError::unavailable(list.index(at), message)
        };
        missing.map(error).collect()
    }
}

/// Checks the REST API; `running` is the API of the running daemon, whose socket and address may be in use.
fn api(api: &Api, state_dir: &std::path::Path, running: &Api) -> Vec<ConfigError> {
    let mut errors = millrace_api::server::probe(api, state_dir, Some(running));
    let certificate = api.tls_cert.as_ref().filter(|_| api.enabled);
    let invalid = certificate.map(|path| invalid_certificates(path, SystemTime::now()));
    for reason in invalid.into_iter().flatten() {
        note(
            &mut errors,
            &Path::default().key("api").key("tls_cert"),
            Err(reason),
        );
    }
    errors
}

/// Checks that the store can be opened in `system.state_dir`.
fn store(config: &Config) -> Option<ConfigError> {
    let path = Path::default().key("system").key("state_dir");
    let outcome = check_state_dir(&config.system.state_dir);
    outcome
        .err()
        .map(|message| ConfigError::unavailable(path, message))
}

/// Checks that a change names no other directory than that of the store, `in_use`: a revision in the store cannot select
/// the store of the next start. The default is valid, as in a configuration without this key.
fn moved_store(config: &Config, in_use: &std::path::Path) -> Option<ConfigError> {
    let wanted = &config.system.state_dir;
    if wanted == in_use || *wanted == System::default().state_dir {
        return None;
    }
    let message = format!(
        "{}: a change does not move the store, which is in {in_use}: stop millraced, move that directory, and name the new \
         one in the configuration file or as --state-dir",
        wanted.display(),
        in_use = in_use.display()
    );
    let path = Path::default().key("system").key("state_dir");
    Some(ConfigError::unavailable(path, message))
}

/// Checks that the store can be opened in a directory, or that the directory can be created.
///
/// # Errors
/// The reason.
pub(crate) fn check_state_dir(directory: &std::path::Path) -> Result<(), String> {
    files::state_dir(directory)
}

/// Returns the memory of the machine in MiB if DPDK is used and the kernel reports it.
fn memory_mib(no_dpdk: bool) -> Option<u64> {
    #[cfg(feature = "dpdk")]
    if !no_dpdk {
        return millrace_dpdk::hugepages::total_mib();
    }
    let _without_dpdk = no_dpdk;
    None
}

/// Returns the cores that workers can be bound to. With DPDK, these are the cores of the process at its start; threads
/// without DPDK can use any core.
fn usable_cores(no_dpdk: bool) -> Vec<usize> {
    #[cfg(feature = "dpdk")]
    if !no_dpdk {
        let cores = millrace_dpdk::thread::allowed_cores();
        return cores.into_iter().map(|core| usize::from(core.0)).collect();
    }
    let _without_dpdk = no_dpdk;
    millrace_datapath::usable_cores().unwrap_or_default()
}

/// Returns the cores as ranges: `0 to 3, 8`.
fn ranges(cores: &BTreeSet<usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for core in cores {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *core => *last = *core,
            _ => ranges.push((*core, *core)),
        }
    }
    let text = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use super::*;

    /// Returns a value of `--state-dir`, because this user may have no access to the default directory.
    fn elsewhere() -> Option<&'static std::path::Path> {
        Some(std::path::Path::new("/nowhere"))
    }

    /// Returns the outcome of a change of a switch whose store is in [`elsewhere`].
    fn changed(
        machine: &Machine,
        config: &Config,
        head: &Config,
        running: &Config,
    ) -> Result<(), ConfigErrors> {
        machine.check_change(config, head, running, elsewhere().unwrap())
    }

    fn config(text: &str) -> Config {
        Config::from_toml("m.toml", text).unwrap()
    }

    #[test]
    fn a_core_that_is_not_there_is_named_with_those_that_are() {
        let machine = Machine {
            cores: Some(BTreeSet::from([0, 1, 2, 8])),
            memory_mib: None,
        };
        let good = config("[system]\nworker_cores = [2, 8]\n[api]\nenabled = false\n");
        assert_eq!(machine.check(&good, elsewhere()), Ok(()));
        let bad = config("[system]\nworker_cores = [2, 900]\n[api]\nenabled = false\n");
        let message = "/system/worker_cores/1: there is no core 900 that this process may use: expected one of 0 to 2, 8";
        assert_eq!(machine.check(&bad, elsewhere()).unwrap_err().to_string(), message);
        assert_eq!(
            changed(&machine, &bad, &good, &good).unwrap_err().to_string(),
            message
        );
        assert_eq!(changed(&machine, &bad, &bad, &good), Ok(()), "nothing new");
        let unknown = Machine {
            cores: None,
            memory_mib: None,
        };
        assert_eq!(unknown.check(&bad, elsewhere()), Ok(()), "nobody knows");
    }

    #[test]
    fn a_change_is_tried_where_it_changes_something_and_the_own_address_is_no_fault() {
        let machine = Machine::detect(true);
        let running = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let at = |listener: &std::net::TcpListener, rest: &str| {
            let address = listener.local_addr().unwrap();
            let socket = directory.path().join("api.sock");
            config(&format!(
                "[api]\nsocket = \"{}\"\nlisten = \"{address}\"\n{rest}",
                socket.display()
            ))
        };
        let started = at(&running, "");
        let without_token = at(&running, "token_file = \"/nope\"\n");
        let moved = at(&other, "");
        let pointers = |config: &Config, head: &Config| match changed(&machine, config, head, &started) {
            Ok(()) => Vec::new(),
            Err(errors) => errors.iter().map(|error| error.path.pointer()).collect(),
        };
        assert_eq!(pointers(&without_token, &started), ["/api/token_file"]);
        assert_eq!(pointers(&without_token, &without_token), [""; 0]);
        assert_eq!(pointers(&moved, &started), ["/api/listen"]);
        assert_eq!(pointers(&started, &moved), [""; 0]);
    }

    /// Returns the pointers of the rejected settings, and the messages.
    fn refused(outcome: Result<(), ConfigErrors>) -> (Vec<String>, String) {
        let errors = outcome.unwrap_err();
        let pointers = errors.iter().map(|error| error.path.pointer()).collect();
        (pointers, errors.to_string())
    }

    #[test]
    fn memory_beyond_that_of_the_machine_is_refused_when_checked_and_when_changed() {
        let machine = Machine {
            cores: None,
            memory_mib: Some(4096),
        };
        let with = |mib: u32| config(&format!("[system]\nmemory_mib = {mib}\n[api]\nenabled = false\n"));
        let (good, bad) = (with(4096), with(4097));
        assert_eq!(machine.check(&good, elsewhere()), Ok(()));
        for outcome in [
            machine.check(&bad, elsewhere()),
            changed(&machine, &bad, &good, &good),
        ] {
            let (pointers, message) = refused(outcome);
            assert_eq!(pointers, ["/system/memory_mib"]);
            assert!(message.contains("but this machine has 4096 MiB"), "{message}");
        }
        assert_eq!(changed(&machine, &bad, &bad, &good), Ok(()), "nothing new");
    }

    fn in_state_dir(directory: &std::path::Path) -> Config {
        let directory = directory.display();
        config(&format!(
            "[system]\nstate_dir = \"{directory}\"\n[api]\nenabled = false\n"
        ))
    }

    #[test]
    fn a_state_directory_that_cannot_be_used_is_refused_when_checked() {
        use std::os::unix::fs::PermissionsExt as _;
        let machine = Machine::detect(true);
        let folder = tempfile::tempdir().unwrap();
        let (file, shared) = (folder.path().join("file"), folder.path().join("shared"));
        std::fs::write(&file, "").unwrap();
        let good = in_state_dir(&folder.path().join("a/b"));
        assert_eq!(machine.check(&good, None), Ok(()));
        assert!(!folder.path().join("a").exists(), "a check creates nothing");
        // The group could replace the store.
        std::fs::create_dir(&shared).unwrap();
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o775)).unwrap();
        for directory in [file.clone(), file.join("below"), "/proc/millrace".into(), shared] {
            let (pointers, message) = refused(machine.check(&in_state_dir(&directory), None));
            assert_eq!(pointers, ["/system/state_dir"], "{message}");
        }
    }

    #[test]
    fn a_change_moves_no_store() {
        let machine = Machine::detect(true);
        let folder = tempfile::tempdir().unwrap();
        let in_use = folder.path().join("one");
        let (started, without) = (in_state_dir(&in_use), config("[api]\nenabled = false\n"));
        let moved = in_state_dir(&folder.path().join("other"));
        let change = |config: &Config, head: &Config| machine.check_change(config, head, &started, &in_use);
        let (pointers, message) = refused(change(&moved, &started));
        assert_eq!(pointers, ["/system/state_dir"]);
        let hint = format!("the store, which is in {}: stop millraced", in_use.display());
        assert!(message.contains(&hint), "{message}");
        // A revision without the key, and one with the directory of the store.
        assert_eq!(change(&without, &started), Ok(()));
        assert_eq!(change(&started, &without), Ok(()));
        assert_eq!(change(&moved, &moved), Ok(()), "nothing new");
    }

    #[test]
    fn every_file_that_a_configuration_names_is_looked_at() {
        let machine = Machine::detect(true);
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let text = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).unwrap();
            path(name)
        };
        // A capture file header without packets: magic, version 2.4, time zone, accuracy, snapshot length, Ethernet.
        let mut head = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        head.extend([0; 8]);
        head.extend([0xff, 0xff, 0, 0, 1, 0, 0, 0]);
        let capture = text("in.pcap", &head);
        let (module, library) = (text("a.wasm", b"\0asm\x01\0\0\0"), text("a.so", b"\x7fELF\x02"));
        let odd = text("odd", b"hello, world, this is no capture");
        let made = rcgen::generate_simple_self_signed(vec!["br0".to_owned()]).unwrap();
        let certificate = text("certificate.pem", made.cert.pem().as_bytes());
        let pem = text("key.pem", made.signing_key.serialize_pem().as_bytes());
        let with = |rx: &str, tx: &str, socket: &str, wasm: &str, so: &str, punix: &str, key: &str| {
            config(&format!(
                "[api]\nenabled = false\n[[bridge]]\nname = \"br0\"\nlisten = [\"punix:{punix}\"]\n\
                 [bridge.tls]\nprivate_key = \"{key}\"\ncertificate = \"{certificate}\"\nca_certificate = \"{certificate}\"\n\
                 [[bridge.port]]\nname = \"p1\"\nnumber = 1\ndevice = \"pcap:rx={rx},tx={tx}\"\n\
                 [[bridge.port]]\nname = \"p2\"\nnumber = 2\ndevice = \"vhost:{socket}\"\n\
                 [[bridge.chain]]\nname = \"c\"\nnumber = 3\n\
                 [[bridge.chain.hop]]\nname = \"h1\"\nfunction = \"wasm:{wasm}\"\n\
                 [[bridge.chain.hop]]\nname = \"h2\"\nfunction = \"library:{so}\"\n"
            ))
        };
        let (out, socket, punix) = (path("out.pcap"), path("vm.sock"), path("br0.mgmt"));
        let good = with(&capture, &out, &socket, &module, &library, &punix, &pem);
        assert_eq!(machine.check(&good, elsewhere()), Ok(()));
        let missing = with(
            &path("no.pcap"),
            &path("no/out.pcap"),
            &path("no/vm.sock"),
            &path("no.wasm"),
            &path("no.so"),
            &path("no/br0.mgmt"),
            &path("no.pem"),
        );
        let (pointers, message) = refused(machine.check(&missing, elsewhere()));
        let all = [
            "/bridge/0/port/0/device",
            "/bridge/0/port/0/device",
            "/bridge/0/port/1/device",
            "/bridge/0/listen/0",
            "/bridge/0/tls/private_key",
            "/bridge/0/chain/0/hop/0/function",
            "/bridge/0/chain/0/hop/1/function",
        ];
        assert_eq!(pointers, all, "{message}");
        let wrong = with(
            &odd,
            folder.path().to_str().unwrap(),
            &socket,
            &odd,
            &odd,
            &punix,
            &pem,
        );
        let (pointers, message) = refused(machine.check(&wrong, elsewhere()));
        assert_eq!(pointers, [all[0], all[1], all[5], all[6]], "{message}");
        for expected in [
            "a capture file (pcap)",
            "a file",
            "a WebAssembly module",
            "a shared object",
        ] {
            assert!(
                message.contains(&format!("expected {expected}")),
                "{expected}: {message}"
            );
        }
        let hops = |rules: &str, out: &str| {
            config(&format!(
                "[api]\nenabled = false\n[[bridge]]\nname = \"br0\"\n[[bridge.chain]]\nname = \"c\"\nnumber = 3\n\
                 [[bridge.chain.hop]]\nname = \"ips\"\nfunction = \"ips\"\nsettings = [\"rules={pem}\", \"rules={rules}\", \
                 \"export=file:{out}\"]\n"
            ))
        };
        assert_eq!(machine.check(&hops(&pem, &path("eve.json")), elsewhere()), Ok(()));
        let (pointers, message) =
            refused(machine.check(&hops(&path("no.rules"), &path("no/eve.json")), elsewhere()));
        let setting = |at: usize| format!("/bridge/0/chain/0/hop/0/settings/{at}");
        assert_eq!(pointers, [setting(1), setting(2)], "{message}");
        let outside = |socket: &str, scenario: &str| {
            config(&format!(
                "[api]\nenabled = false\n[[bridge]]\nname = \"br0\"\n[[bridge.chain]]\nname = \"c\"\nnumber = 3\n\
                 [[bridge.chain.hop]]\nname = \"h\"\nfunction = \"attached:{socket}\"\nclass = \"isolated\"\n\
                 [[bridge.port]]\nname = \"p1\"\nnumber = 1\ndevice = \"wan:w,a\"\n\
                 [[bridge.port]]\nname = \"p2\"\nnumber = 2\ndevice = \"wan:w,b\"\n\
                 [[wan]]\nname = \"w\"\nscenario = \"{scenario}\"\n"
            ))
        };
        assert_eq!(machine.check(&outside(&socket, &pem), elsewhere()), Ok(()));
        let missing = outside(&path("no/h.sock"), &path("no.txt"));
        let (pointers, message) = refused(machine.check(&missing, elsewhere()));
        assert_eq!(
            pointers,
            ["/bridge/0/chain/0/hop/0/function", "/wan/0/scenario"],
            "{message}"
        );
        let folk = "device = \"vhost:/tmp/vm.sock,owner=nobody-here,group=nobody-there\"";
        let folk = config(&format!(
            "[api]\nenabled = false\n[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p\"\nnumber = 1\n{folk}\n"
        ));
        let (_, message) = refused(machine.check(&folk, elsewhere()));
        assert!(
            message.contains("no such user") && message.contains("no such group"),
            "{message}"
        );
    }
}
