//! Emulated paths in links: `millrace-wan` in a separate namespace, between two veth pairs.
//!
//! ```text
//!  node a           wan.1                     node b
//!  eth0 ---veth--- a == millrace-wan == b ---veth--- eth0
//! ```

use std::ffi::OsString;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use millrace_types::Mac;

use crate::directory::LabDirectory;
use crate::launch::{Daemon, launch};
use crate::program::find_program;
use crate::progress::Progress;
use crate::state::Journal;
use crate::system::SystemError;
use crate::topology::{End, Link, LinkWan};
use crate::up::{UpError, UpOptions};

/// The kind of an emulated path's node in the records of a lab.
pub(crate) const KIND: &str = "wan";
/// The names of the two interfaces, in the order of the link's ends.
pub(crate) const INTERFACES: [&str; 2] = ["a", "b"];
/// The program, its role in the lab, and the name of its log.
const PROGRAM: &str = "millrace-wan";
/// The polling interval of a starting emulator.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Returns the veth pairs of a link: one pair, or two pairs with an emulated path between them.
pub(crate) fn pairs(link: &Link) -> Vec<(End, End)> {
    let Some(wan) = &link.wan else {
        return vec![(link.a.clone(), link.b.clone())];
    };
    let near = |end: &End, side: usize| {
        let middle = End {
            node: wan.node.clone(),
            interface: INTERFACES[side].to_owned(),
            // Only the emulator uses this interface: no frame has its address.
            mac: Mac::from_u64(0x0202_0000_0000 | (end.mac.to_u64() & 0xffff_ffff)),
        };
        (end.clone(), middle)
    };
    vec![near(&link.a, 0), near(&link.b, 1)]
}

/// Returns the path of the emulator's control socket.
fn socket(directory: &LabDirectory, wan: &LinkWan) -> PathBuf {
    directory.node(&wan.node).join("wan.sock")
}

/// Returns the environment variable by which `millrace wan`, run in the namespace, finds the emulator.
pub(crate) fn environment(wan: &LinkWan, directory: &LabDirectory) -> (String, String) {
    let socket = socket(directory, wan);
    ("MILLRACE_WAN".to_owned(), socket.display().to_string())
}

/// Starts the emulator of a path; returns when it forwards.
pub(crate) fn start(
    wan: &LinkWan,
    options: &UpOptions,
    journal: &mut Journal,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), UpError> {
    let began = Instant::now();
    let program = std::env::var_os("MILLRACE_WAN_PROGRAM").map(PathBuf::from);
    let program = program
        .or_else(|| find_program(PROGRAM))
        .ok_or(UpError::NoEmulator {
            looked: "beside this program, in the sbin beside its folder or in $PATH",
        })?;
    let directory = journal.directory().node(&wan.node);
    fs::create_dir_all(&directory).map_err(SystemError::file("create", &directory))?;
    let socket = socket(journal.directory(), wan);
    let mut args: Vec<OsString> = vec!["between".into()];
    args.extend(INTERFACES.map(|name| format!("kernel:{name}").into()));
    args.extend(["--control".into(), socket.clone().into()]);
    args.extend(wan.options.iter().map(OsString::from));
    let daemon = Daemon {
        switch: &wan.node,
        role: PROGRAM,
        program: &program,
        args,
        environment: &[],
    };
    let running = launch(journal, &daemon)?;
    let failed = |problem: String| UpError::Emulator {
        wan: wan.node.clone(),
        problem,
        log: running.log.clone(),
        tail: running.tail(),
    };
    let deadline = Instant::now() + options.ready_within;
    loop {
        let ended = running.ended();
        if let Some(status) = ended {
            return Err(failed(format!("ended with {status}")));
        }
        if answers(&socket) {
            break;
        }
        if Instant::now() > deadline {
            let waited = options.ready_within.as_secs();
            return Err(failed(format!("is not ready after {waited} s")));
        }
        std::thread::sleep(ASK_EVERY);
    }
    progress(Progress::Path {
        wan: &wan.node,
        took: began.elapsed(),
    });
    Ok(())
}

/// Returns true if the emulator answers at its control socket. It answers once both interfaces are open.
fn answers(socket: &Path) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"{\"command\":\"show\"}\n")?;
        let mut first = [0];
        stream.read_exact(&mut first).map(|()| true)
    };
    ask().unwrap_or(false)
}
