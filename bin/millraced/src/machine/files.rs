//! Check of the files, directories and users that a configuration names, with the permissions of this process.
//!
//! The check leaves nothing behind and loads no code: a shared object is only read.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path as FilePath;
use std::sync::atomic::{AtomicU32, Ordering};

use millrace_agent::channel::{TlsFault, check_tls};
use millrace_model::{
    Bridge, Chain, Config, ConfigError, Device, ListenTarget, Path, PcapFiles, Setting, Tls, Vnic, VnicKind,
    VnicRole,
};
use nix::unistd::{AccessFlags, Group, User, eaccess};
use pcap_file::pcap::PcapReader;

use super::fault::note;

/// The first bytes of a WebAssembly module.
const WASM_MAGIC: &[u8] = b"\0asm";
/// The first bytes of a shared object.
const ELF_MAGIC: &[u8] = b"\x7fELF";

/// Returns an error for each file of bridges, ports, chains, listeners, the Open vSwitch database and emulated paths that cannot be
/// used.
pub(super) fn check(config: &Config) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    for (at, bridge) in config.bridges.iter().enumerate() {
        let path = Path::default().key("bridge").index(at);
        ports(bridge, &path, &mut errors);
        listeners(bridge, &path, &mut errors);
        tls(bridge.tls.as_ref(), &path, &mut errors);
        for (at, chain) in bridge.chains.iter().enumerate() {
            functions(chain, &path.key("chain").index(at), &mut errors);
        }
    }
    tls(
        config.ovsdb.tls.as_ref(),
        &Path::default().key("ovsdb"),
        &mut errors,
    );
    for (at, wan) in config.wans.iter().enumerate() {
        if let Some(file) = &wan.scenario {
            let path = Path::default().key("wan").index(at).key("scenario");
            note(&mut errors, &path, readable(file).map(|_| ()));
        }
    }
    errors
}

fn ports(bridge: &Bridge, path: &Path, errors: &mut Vec<ConfigError>) {
    for (device, path) in bridge.device_paths(path) {
        match device {
            Device::Pcap(files) => capture_files(files, &path, errors),
            Device::Vnic(vnic) => socket_of(vnic, &path, errors),
            _ => {}
        }
    }
}

fn capture_files(files: &PcapFiles, path: &Path, errors: &mut Vec<ConfigError>) {
    if let Some(rx) = files.rx() {
        note(errors, path, capture(rx));
    }
    if let Some(tx) = files.tx() {
        note(errors, path, writable(tx));
    }
}

/// Checks that a file is a capture that can be read.
fn capture(file: &FilePath) -> Result<(), String> {
    let opened = readable(file)?;
    // A pipe has no header before its writer writes it.
    if opened.metadata().is_ok_and(|found| !found.is_file()) {
        return Ok(());
    }
    PcapReader::new(opened)
        .map(|_| ())
        .map_err(|error| format!("{}: {error}: expected a capture file (pcap)", file.display()))
}

/// Opens a file for reading.
fn readable(file: &FilePath) -> Result<File, String> {
    let failed = |error: std::io::Error| format!("{}: cannot be read: {error}", file.display());
    let found = fs::metadata(file).map_err(failed)?;
    if found.is_dir() {
        return Err(format!("{}: is a directory: expected a file", file.display()));
    }
    if !found.is_file() {
        // Opening a pipe would block until it has a writer.
        eaccess(file, AccessFlags::R_OK).map_err(|errno| failed(errno.into()))?;
        return File::open("/dev/null").map_err(failed);
    }
    File::open(file).map_err(failed)
}

/// Checks that a file can be written, or created if it is absent.
fn writable(file: &FilePath) -> Result<(), String> {
    match fs::metadata(file) {
        Ok(found) if found.is_dir() => Err(format!("{}: is a directory: expected a file", file.display())),
        Ok(_) => eaccess(file, AccessFlags::W_OK)
            .map_err(|errno| format!("{}: cannot be written: {}", file.display(), errno.desc())),
        Err(error) if error.kind() == ErrorKind::NotFound => parent(file),
        Err(error) => Err(format!("{}: cannot be written: {error}", file.display())),
    }
}

/// Checks that a file can be created in its directory.
fn parent(file: &FilePath) -> Result<(), String> {
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => FilePath::new("."),
    };
    directory_is_writable(directory)
        .map_err(|reason| format!("{}: cannot be created: {reason}", file.display()))
}

/// Checks that files can be created in an existing directory: creates a directory there and removes it. Permission
/// bits do not suffice; root has them in /proc, too.
fn directory_is_writable(directory: &FilePath) -> Result<(), String> {
    static PROBES: AtomicU32 = AtomicU32::new(0);
    match fs::metadata(directory) {
        Ok(found) if !found.is_dir() => return Err(format!("{} is not a directory", directory.display())),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(format!("there is no directory {}", directory.display()));
        }
        Err(error) => return Err(format!("the directory {}: {error}", directory.display())),
    }
    let (process, number) = (std::process::id(), PROBES.fetch_add(1, Ordering::Relaxed));
    let probe = directory.join(format!(".millraced-probe-{process}-{number}"));
    fs::create_dir(&probe)
        .and_then(|()| fs::remove_dir(&probe))
        .map_err(|error| format!("the directory {} cannot be written: {error}", directory.display()))
}

/// Checks the directory and owners of a socket that a virtual NIC creates; a socket that it connects to may be created
/// later.
fn socket_of(vnic: &Vnic, path: &Path, errors: &mut Vec<ConfigError>) {
    if vnic.role() == VnicRole::Client || vnic.kind() == VnicKind::VirtioUser {
        return;
    }
    note(errors, path, parent(vnic.path()));
    if let Some(owner) = vnic.owner() {
        let is_known = owner.parse::<u32>().is_ok() || matches!(User::from_name(owner), Ok(Some(_)));
        let missing = || format!("owner={owner}: this machine has no such user");
        note(errors, path, is_known.then_some(()).ok_or_else(missing));
    }
    if let Some(group) = vnic.group() {
        let is_known = group.parse::<u32>().is_ok() || matches!(Group::from_name(group), Ok(Some(_)));
        let missing = || format!("group={group}: this machine has no such group");
        note(errors, path, is_known.then_some(()).ok_or_else(missing));
    }
}

fn listeners(bridge: &Bridge, path: &Path, errors: &mut Vec<ConfigError>) {
    for (at, listener) in bridge.listen.iter().enumerate() {
        if let ListenTarget::Unix(file) = &listener.target {
            let path = path.key("listen").index(at);
            note(errors, &path, parent(FilePath::new(file.as_str())));
        }
    }
}

fn tls(tls: Option<&Tls>, path: &Path, errors: &mut Vec<ConfigError>) {
    let Some(tls) = tls else { return };
    for TlsFault { key, reason } in check_tls(tls) {
        note(errors, &path.key("tls").key(key), Err(reason));
    }
}

fn functions(chain: &Chain, path: &Path, errors: &mut Vec<ConfigError>) {
    for (at, hop) in chain.hops.iter().enumerate() {
        let hop_path = path.key("hop").index(at);
        let path = hop_path.key("function");
        let text = hop.function.as_str();
        if let Some(file) = text.strip_prefix("wasm:") {
            note(
                errors,
                &path,
                starts_with_magic(file, WASM_MAGIC, "a WebAssembly module"),
            );
        } else if let Some(file) = text.strip_prefix("library:") {
            note(
                errors,
                &path,
                starts_with_magic(file, ELF_MAGIC, "a shared object"),
            );
        } else {
            if let Some(socket) = hop.function.attach_path() {
                note(errors, &path, parent(FilePath::new(socket)));
            }
            settings(&hop.settings, &hop_path.key("settings"), errors);
        }
    }
}

/// Checks the files in the settings of a built-in or attached function: the files with its rules, and the files that it
/// exports to.
fn settings(settings: &[Setting], path: &Path, errors: &mut Vec<ConfigError>) {
    for (at, setting) in settings.iter().enumerate() {
        let outcome = match (setting.key(), setting.value().strip_prefix("file:")) {
            ("rules", _) => readable(FilePath::new(setting.value())).map(|_| ()),
            ("export", Some(file)) => writable(FilePath::new(file)),
            _ => Ok(()),
        };
        note(errors, &path.index(at), outcome);
    }
}

/// Checks that a file can be read and starts with `magic`.
fn starts_with_magic(file: &str, magic: &[u8], expected: &str) -> Result<(), String> {
    let mut opened = readable(FilePath::new(file))?;
    let mut head = [0; 4];
    match opened.read_exact(&mut head) {
        Ok(()) if head == magic => Ok(()),
        Ok(()) => Err(format!("{file}: expected {expected}")),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(format!(
            "{file}: expected {expected}, found a file of less than 4 bytes"
        )),
        Err(error) => Err(format!("{file}: cannot be read: {error}")),
    }
}

/// Checks that the store can be opened in a directory, or that the directory can be created.
pub(super) fn state_dir(directory: &FilePath) -> Result<(), String> {
    let existing = directory
        .ancestors()
        .find(|path| fs::symlink_metadata(path).is_ok());
    let existing = match existing {
        Some(path) if !path.as_os_str().is_empty() => path,
        _ => FilePath::new("."),
    };
    directory_is_writable(existing).map_err(|reason| match existing == directory {
        true => reason,
        false => format!("{}: cannot be created: {reason}", directory.display()),
    })?;
    if existing == directory {
        millrace_store::check_directory(directory).map_err(|error| error.to_string())?;
    }
    let store = directory.join(millrace_store::FILE_NAME);
    if store.exists() {
        readable(&store)?;
        writable(&store)?;
    }
    Ok(())
}
