//! A function that an operator starts and attaches to a hop of a chain (`function = "attached:PATH"`).
//!
//! The process connects before it loads the function, because its sandbox forbids connections afterwards. The
//! process ends when the switch detaches it, so its supervisor starts it again (`Restart=always` of systemd).

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use millrace_nf::attach::{AttachError, Attachment};
use std::os::fd::AsRawFd as _;

use crate::function::{FUNCTIONS, check, load, set_scheduling};
use crate::options::Options;
use crate::sandbox::{self, PacketSource};

/// Time limit of the switch's answer.
const ANSWER: Duration = Duration::from_secs(5);
/// The pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(100);

/// Runs the function until the switch detaches it.
pub(crate) fn run(options: &Options, socket: &Path) -> Result<()> {
    // The check comes before the connection, so that errors are reported even if no switch listens.
    check(options)?;
    set_scheduling(options.nice);
    let names = FUNCTIONS.find(&options.function).map(|kind| kind.counters);
    let mut attachment = connect(options, socket, names.unwrap_or_default())?;
    let source = PacketSource::Socket {
        socket: attachment.socket().as_raw_fd(),
        // No device is kicked, so this is standard error, to which the function may write anyway.
        kick: 2,
    };
    let (kind, mut function, setup) = load(options, source)?;
    attachment.set_writes(!kind.only_reads());
    let sandbox = sandbox::before_running(options.code_generation(), source);
    sandbox.context("the rights of this process cannot be dropped")?;
    eprintln!(
        "millrace-nf: attached as instance {} of {}",
        attachment.instance,
        socket.display()
    );
    attachment.run(&mut *function, &setup, || true);
    Ok(())
}

/// Connects to the switch. Retries until the switch has the hop and a free instance number.
fn connect(options: &Options, socket: &Path, counters: &[&str]) -> Result<Attachment> {
    let mut is_logged = false;
    loop {
        match Attachment::new(socket, options.instance, counters, ANSWER) {
            Ok(attachment) => return Ok(attachment),
            Err(error @ (AttachError::Connect { .. } | AttachError::Refused(_))) => {
                if !is_logged {
                    eprintln!("millrace-nf: {error}; waiting for a switch");
                }
                is_logged = true;
                std::thread::sleep(RETRY);
            }
            Err(error) => return Err(error.into()),
        }
    }
}
