//! `millrace log`: the levels of the daemon's log.

use anyhow::Result;
use millrace_api::view::Log;

use crate::output::Session;

/// Shows the filter of the log, or replaces it.
pub(crate) fn run(session: &Session, filter: Option<&str>) -> Result<()> {
    let client = session.client()?;
    match filter {
        Some(filter) => session.print(&client.set_log(filter)?, |log| format!("{}\n", log.filter)),
        None => session.print(&client.log()?, text),
    }
}

fn text(log: &Log) -> String {
    format!(
        "{}\nlevels:  {}\ntargets: {}\n",
        log.filter,
        log.levels.join(", "),
        log.targets.join(", ")
    )
}
