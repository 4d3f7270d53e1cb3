//! `millrace capture`: packets of a bridge as pcapng.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};

use anyhow::{Context, Result, bail};
use millrace_api::client::CaptureOptions;

use crate::cli::Capture;
use crate::output::Session;

pub(crate) fn run(session: &Session, args: &Capture) -> Result<()> {
    let to_stdout = args.write.as_os_str() == "-";
    if to_stdout && io::stdout().is_terminal() {
        bail!(
            "a capture is not for a terminal: give a file with -w FILE, or a pipe as in `… -w - | tshark -r -`"
        );
    }
    let options = CaptureOptions {
        port: args.port.clone(),
        direction: args.direction.map(|way| way.word().to_owned()),
        matching: args.matching.clone(),
        bpf: args.filter.as_deref().map(compile).transpose()?,
        snap: args.snap,
        count: args.count,
    };
    // The request comes first, so that a refusal leaves an existing file unchanged.
    let mut packets = session.client()?.capture(&args.bridge, &options)?;
    if to_stdout {
        return copy(&mut packets, &mut io::stdout().lock());
    }
    let mut file =
        File::create(&args.write).with_context(|| format!("cannot write {}", args.write.display()))?;
    if args.count.is_none() && io::stderr().is_terminal() {
        // A hint for people: an error while it is written is ignored.
        let _ = writeln!(io::stderr(), "capturing to {}; Ctrl-C ends", args.write.display());
    }
    copy(&mut packets, &mut file)
}

/// Compiles a pcap filter expression for Ethernet frames to classic BPF, in the form of `tcpdump -ddd` with commas for
/// line ends.
///
/// The expression is compiled here and not in the daemon, so that libpcap's parser runs with the rights of the user; the
/// daemon takes only programs that it has verified.
fn compile(expression: &str) -> Result<String> {
    let instructions = millrace_pcap_filter::compile(expression).context("--filter is not a pcap filter")?;
    let texts = instructions.iter().map(|instruction| format!(",{instruction}"));
    Ok(instructions.len().to_string() + &texts.collect::<String>())
}

/// Copies packets as they arrive, so that the reader of a pipe sees each at once.
fn copy(from: &mut impl Read, to: &mut impl Write) -> Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let size = from.read(&mut buffer).context("the daemon ended the capture")?;
        if size == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..size])?;
        to.flush()?;
    }
}
