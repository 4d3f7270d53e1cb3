//! `millrace send` and `millrace receive`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use millrace_courier::identity::PublicKey;
use millrace_courier::io::via::Via;
use millrace_types::BitRate;

const STATUS: &str = "Exit status: 0 all receivers have everything, verified and in place; 3 some of them; 4 refused; 5 a \
    file changed or a receipt is wrong; 6 interrupted, the same command goes on; 1 another failure.";

/// Send files and directories to one or more receivers over UDP, encrypted
#[derive(Debug, Args)]
#[command(after_help = format!("A target is a ticket (mr1…) that `millrace receive` printed, or KEY@HOST:PORT, or the \
    HOST:PORT of a receiver that a ticket led to before. A directory with a trailing slash stands for its contents. \
    docs/transfer.md explains the rest.\n\nExamples:\n  \
    millrace send data/ mr1aaaa…\n  \
    millrace send big.iso results mr1aaaa… mr1bbbb… --rate 2Gbps\n\n{STATUS}"))]
pub struct Send {
    /// Files and directories, then targets
    #[arg(required = true, num_args = 2.., value_name = "SOURCE… TARGET")]
    pub words: Vec<String>,
    /// Most that all receivers together get, such as 500Mbps
    #[arg(long)]
    pub rate: Option<BitRate>,
    /// Loss in percent that does not count as congestion, at most 15
    #[arg(long, value_name = "PERCENT")]
    pub loss_tolerance: Option<f64>,
    /// Leave out files that change while they are sent, instead of ending
    #[arg(long)]
    pub withdraw_changed: bool,
    /// Show the files, and send nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Interface to use in place of the kernel's network, such as memif:/run/millrace/a.sock,address=192.0.2.1/24,gateway=192.0.2.254
    #[arg(long, value_name = "DEVICE")]
    pub via: Option<Via>,
    /// File of this user's key; created if it does not exist [default: ~/.config/millrace/identity]
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
}

/// Receive files into a directory from a sender with a ticket
#[derive(Debug, Args)]
#[command(after_help = format!("Prints a ticket: pass it to the sender, who runs `millrace send SOURCE TICKET`. The first \
    sender that uses a ticket owns it, and may use it again to resume.\n\nExamples:\n  \
    millrace receive /in --once\n  \
    millrace receive /in --listen 0.0.0.0:7800 --allow KEY\n\n{STATUS}"))]
pub struct Receive {
    /// Directory of the files; nothing outside it is touched
    pub directory: PathBuf,
    /// End after the first sender
    #[arg(long)]
    pub once: bool,
    /// Address and UDP port
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:7800")]
    pub listen: SocketAddr,
    /// Address for the ticket, instead of those of this machine; repeatable
    #[arg(long, value_name = "IP")]
    pub address: Vec<IpAddr>,
    /// Key of a sender that needs no ticket; repeatable
    #[arg(long, value_name = "KEY")]
    pub allow: Vec<PublicKey>,
    /// Hours for which the ticket is valid
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    pub valid: u64,
    /// Give no file its name before all are verified
    #[arg(long)]
    pub all_at_once: bool,
    /// Refuse a transfer that would replace a file
    #[arg(long)]
    pub keep_existing: bool,
    /// Read files that exist, and receive only the extents that differ
    #[arg(long)]
    pub delta: bool,
    /// Give files the permission bits and modification times of the source
    #[arg(long)]
    pub modes_and_times: bool,
    /// Interface to use in place of the kernel's network, such as memif:/run/millrace/a.sock,address=192.0.2.1/24,gateway=192.0.2.254
    #[arg(long, value_name = "DEVICE")]
    pub via: Option<Via>,
    /// File of this user's key; created if it does not exist [default: ~/.config/millrace/identity]
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
}
