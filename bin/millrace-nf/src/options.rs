//! The command line of `millrace-nf`.

use std::path::PathBuf;

use clap::Parser;
use millrace_loader::WASM;

use crate::sandbox::CodeGeneration;

/// Run a network function: as a hop of a chain, started by millraced or by an operator (--attach), or behind a vhost-user port of
/// any switch (--vhost)
#[derive(Parser, Debug)]
#[command(name = "millrace-nf", version)]
pub(crate) struct Options {
    /// The memory shared with the switch
    #[arg(long, value_name = "FILE", required_unless_present_any = ["attach", "describe", "vhost"])]
    pub(crate) window: Option<PathBuf>,
    /// Attach to the hop with `function = "attached:SOCKET"`: wait until the switch listens, and end when it ends
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["window", "wait", "describe", "memory", "vhost"])]
    pub(crate) attach: Option<PathBuf>,
    /// With --attach: the number of the instance, over all lanes; any that is free if not given
    #[arg(long, value_name = "N", requires = "attach")]
    pub(crate) instance: Option<u32>,
    /// Run behind the vhost-user port at this socket, of any switch that polls: wait until the switch listens,
    /// send back packets that are not dropped, and end when the switch ends
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["window", "wait", "describe", "memory"])]
    pub(crate) vhost: Option<PathBuf>,
    /// With --vhost: descriptors of each ring, a power of two
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u16).range(2..=32768), requires = "vhost")]
    pub(crate) descriptors: u16,
    /// With --vhost: the CPU core to run on
    #[arg(long, value_name = "CORE", requires = "vhost")]
    pub(crate) core: Option<usize>,
    /// Wait for the end of the standard input, which the switch closes once the limits of this process are in force, and read
    /// the key of the function's hash tables from it
    #[arg(long)]
    pub(crate) wait: bool,
    /// Print the description of the function, and exit
    #[arg(long)]
    pub(crate) describe: bool,
    /// Packet memory, `ADDRESS:SIZE:OFFSET:FILE`; may be given several times
    #[arg(long, value_name = "PART")]
    pub(crate) memory: Vec<String>,
    /// The function: a name, `wasm:PATH` or `library:PATH`
    #[arg(long)]
    pub(crate) function: String,
    /// The key of the function's hash tables; random unless given
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// The number of the function among those of its hop
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) number: u32,
    /// The memory in which the switch writes the source of the function's shared value
    #[arg(long, value_name = "FILE", requires = "window")]
    pub(crate) source: Option<PathBuf>,
    /// Change to this user id, and to the group id of the same number
    #[arg(long, value_name = "UID")]
    pub(crate) user: Option<u32>,
    /// The limit of the function's memory, in bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory_limit: Option<u64>,
    /// The limit of instructions of a WebAssembly function for one burst
    #[arg(long)]
    pub(crate) fuel: Option<u64>,
    /// The niceness of the process
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    pub(crate) nice: i32,
    /// A setting of the function, `key=value`; may be given several times
    #[arg(long = "setting", value_name = "SETTING")]
    pub(crate) settings: Vec<String>,
}

impl Options {
    /// Returns whether code is generated at run time: WebAssembly modules are compiled, other functions are not.
    pub(crate) fn code_generation(&self) -> CodeGeneration {
        match self.function.starts_with(WASM.prefix) {
            true => CodeGeneration::Compiles,
            false => CodeGeneration::None,
        }
    }
}
