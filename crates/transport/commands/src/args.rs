//! `millrace send` and `millrace receive`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use millrace_courier::identity::PublicKey;
use millrace_courier::io::via::Via;
use millrace_courier::{Policy, Stragglers};
use millrace_types::{BitRate, parse_duration};

use crate::ports::{Listen, PortRange, TicketAddress};

const STATUS: &str = "Exit status: 0 all receivers have everything, verified and in place; 3 some of them; 4 refused; 5 a \
    file changed or could not be read, or a receipt is wrong; 6 interrupted, the same command goes on; 1 another failure.";

/// The longest validity of a ticket, in hours: a hundred years.
const HOURS_MAX: u64 = 876_000;
/// The highest loss tolerance, in percent.
const LOSS_MAX: f64 = 15.0;

/// When files get their names
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Commit {
    /// Each file once it is verified
    Each,
    /// All files once all are verified
    All,
}

/// Treatment of a file that changes while it is sent
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnChange {
    /// The file is left out, the others arrive, and both ends name it and end with status 5
    LeaveOut,
    /// The transfer ends with status 5; the same command goes on
    Stop,
}

/// Send files and directories to one or more receivers over UDP, encrypted
#[derive(Debug, Args)]
#[command(after_help = format!("A target is a ticket (mr1…) that `millrace receive` printed, or HOST:DIRECTORY, where a \
    receiver is started by ssh, or millrace://HOST/GRANT/PATH at a daemon, or KEY@HOST[:PORT], or the HOST:PORT of a receiver that a ticket led to before. A directory \
    with a trailing slash stands for its contents. docs/transfer.md explains the rest.\n\nExamples:\n  \
    millrace send data/ mr1aaaa…\n  \
    millrace send data/ siteA:/in siteB:/in mr1aaaa…\n  \
    millrace send big.iso results mr1aaaa… mr1bbbb… --rate 2Gbps\n\n{STATUS}"))]
pub struct Send {
    /// Files and directories, then targets
    #[arg(required = true, num_args = 1.., value_name = "SOURCE… TARGET")]
    pub words: Vec<String>,
    /// Maximum rate of all receivers together, such as 500Mbps
    #[arg(long)]
    pub rate: Option<BitRate>,
    /// Congestion control: fair, background (uses what others leave), or fixed:RATE
    #[arg(long, value_name = "POLICY", default_value = "fair", value_parser = policy)]
    pub policy: Policy,
    /// Slow receivers: keep, detach:TIME after the first one is done, or quorum:N done receivers suffice
    #[arg(long, value_name = "RULE", default_value = "keep", value_parser = stragglers)]
    pub stragglers: Stragglers,
    /// Loss in percent that does not count as congestion, at most 15
    #[arg(long, value_name = "PERCENT", value_parser = loss)]
    pub loss_tolerance: Option<f64>,
    /// Let receivers read files that exist, and send only the extents that differ
    #[arg(long)]
    pub delta: bool,
    /// When receivers give files their names
    #[arg(long, value_enum, default_value = "each")]
    pub commit: Commit,
    /// Send owners and extended attributes, access control lists among them
    #[arg(long)]
    pub preserve: bool,
    /// Treatment of a file that changes while it is sent [default: leave-out; with `--commit all`: stop]
    #[arg(long, value_enum, hide_default_value = true)]
    pub on_change: Option<OnChange>,
    /// File with further sources, one a line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub files_from: Option<PathBuf>,
    /// File with further targets, one a line; `-` is standard input: receivers may join while others receive
    #[arg(long, value_name = "FILE")]
    pub targets_from: Option<PathBuf>,
    /// Count files and bytes, and send nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Silence after which a receiver counts as lost, and is dialled again, such as 20s
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = time)]
    pub silence: Duration,
    /// Time for which a lost receiver is dialled again, such as 10m
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
    pub patience: Duration,
    /// Command that runs a command on another machine, for HOST:DIRECTORY
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    pub ssh: String,
    /// Path of this program on the other machine, for HOST:DIRECTORY
    #[arg(long, value_name = "PATH", default_value = "millrace")]
    pub remote_program: String,
    /// UDP port of the receiver on the other machine, for HOST:DIRECTORY, or a range of which it takes the first free one, such as
    /// 7800:7809 [default: any free port]
    #[arg(long, value_name = "PORT[:LAST]", value_parser = PortRange::parse)]
    pub port: Option<PortRange>,
    /// Interface to use in place of the kernel's network, such as memif:/run/millrace/a.sock,address=192.0.2.1/24,gateway=192.0.2.254
    #[arg(long, value_name = "DEVICE")]
    pub via: Option<Via>,
    /// File to which the keys of this transfer are appended: with it, a capture can be read (docs/transport-protocol.md)
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub key_log: Option<PathBuf>,
    /// File of this user's key; created if it does not exist [default: ~/.config/millrace/identity]
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
}

/// Receive files into a directory from a sender with a ticket
#[derive(Debug, Args)]
#[command(after_help = format!("Prints a ticket: pass it to the sender, who runs `millrace send SOURCE TICKET`. The first \
    sender that uses a ticket owns it, and may use it again to resume.\n\nExamples:\n  \
    millrace receive /in --once\n  \
    millrace receive /in --listen 0.0.0.0:7800 --allow KEY\n  \
    millrace receive /in --from millrace://siteA/results/2026/\n\n{STATUS}"))]
pub struct Receive {
    /// Directory of the files; nothing outside it is touched
    pub directory: PathBuf,
    /// Path of a daemon to fetch files from, such as millrace://HOST/GRANT/PATH; with a trailing slash, the contents of a directory
    #[arg(long, value_name = "URL", conflicts_with_all = ["listen", "address", "allow", "via"])]
    pub from: Option<String>,
    /// End after the first sender
    #[arg(long)]
    pub once: bool,
    /// Address and UDP port, or a range of ports of which the first free one is taken, such as 0.0.0.0:7800:7809
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:7800", value_parser = Listen::parse)]
    pub listen: Listen,
    /// Address or name for the ticket, instead of the addresses of this machine, and the port if a translator maps another one; repeatable
    #[arg(long, value_name = "HOST[:PORT]", value_parser = TicketAddress::parse)]
    pub address: Vec<TicketAddress>,
    /// Key of a sender that needs no ticket; repeatable
    #[arg(long, value_name = "KEY")]
    pub allow: Vec<PublicKey>,
    /// Hours for which the ticket is valid
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=HOURS_MAX))]
    pub valid: u64,
    /// When files get their names
    #[arg(long, value_enum, default_value = "each")]
    pub commit: Commit,
    /// Refuse a transfer that would replace a file
    #[arg(long)]
    pub keep_existing: bool,
    /// Read files that exist, and receive only the extents that differ
    #[arg(long)]
    pub delta: bool,
    /// Give files the permission bits and modification times of the source
    #[arg(long)]
    pub modes_and_times: bool,
    /// Give files owners and extended attributes, too, if the sender sends them; changing owners needs root
    #[arg(long)]
    pub preserve: bool,
    /// Silence after which a sender counts as lost, such as 20s
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = time)]
    pub silence: Duration,
    /// Time that a lost sender has to come back, such as 10m
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
    pub patience: Duration,
    /// Interface to use in place of the kernel's network, such as memif:/run/millrace/a.sock,address=192.0.2.1/24,gateway=192.0.2.254
    #[arg(long, value_name = "DEVICE")]
    pub via: Option<Via>,
    /// File to which the keys of this transfer are appended: with it, a capture can be read (docs/transport-protocol.md)
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub key_log: Option<PathBuf>,
    /// File of this user's key; created if it does not exist [default: ~/.config/millrace/identity]
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
}

/// Returns the time of a text such as 500ms, 20s, 10m or 2h.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    match time.is_zero() {
        true => Err(format!("`{text}`: expected more than no time, such as 20s")),
        false => Ok(time),
    }
}

/// Parses a loss tolerance, in percent.
fn loss(text: &str) -> Result<f64, String> {
    let percent = text
        .parse()
        .ok()
        .filter(|percent| (0.0..=LOSS_MAX).contains(percent));
    percent.ok_or_else(|| format!("`{text}` is no loss tolerance: expected 0 to {LOSS_MAX} percent"))
}

fn policy(text: &str) -> Result<Policy, String> {
    match text.split_once(':') {
        None if text == "fair" => Ok(Policy::Fair),
        None if text == "background" => Ok(Policy::Background),
        Some(("fixed", rate)) => {
            let rate: BitRate = rate.parse().map_err(|error| format!("{error}"))?;
            Ok(Policy::Fixed(rate))
        }
        _ => Err(format!(
            "`{text}` is no policy; expected fair, background or fixed:RATE, such as fixed:500Mbps"
        )),
    }
}

fn stragglers(text: &str) -> Result<Stragglers, String> {
    let expected =
        || format!("`{text}` is no rule; expected keep, detach:TIME or quorum:NUMBER, such as detach:10m");
    match text.split_once(':') {
        None if text == "keep" => Ok(Stragglers::Keep),
        Some(("detach", text)) => Ok(Stragglers::Detach(time(text)?)),
        Some(("quorum", number)) => match number.parse() {
            Ok(number) if number > 0 => Ok(Stragglers::Quorum(number)),
            _ => Err(expected()),
        },
        _ => Err(expected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_rules_and_times_are_parsed_or_refused_with_an_example() {
        assert_eq!(time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(
            stragglers("detach:250ms"),
            Ok(Stragglers::Detach(Duration::from_millis(250)))
        );
        assert_eq!(stragglers("quorum:8"), Ok(Stragglers::Quorum(8)));
        let rate = BitRate::from_bps(500_000_000);
        assert_eq!(policy("fixed:500Mbps"), Ok(Policy::Fixed(rate)));
        assert_eq!(policy("background"), Ok(Policy::Background));
        for wrong in ["", "s", "10", "0s", "99999999999999999h"] {
            assert!(time(wrong).unwrap_err().contains("20s"), "{wrong}");
        }
        assert!(stragglers("quorum:0").unwrap_err().contains("detach:10m"));
        assert!(policy("fast").unwrap_err().contains("fixed:500Mbps"));
        assert_eq!(loss("2.5"), Ok(2.5));
        for wrong in ["-1", "15.1", "NaN", "inf", "x"] {
            assert!(loss(wrong).unwrap_err().contains("0 to 15"), "{wrong}");
        }
    }
}
