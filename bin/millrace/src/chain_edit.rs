//! Changes of a chain in the configuration.

use anyhow::{Result, anyhow, bail};
use millrace_api::client::ChangeOptions;
use millrace_model::Config;

use crate::output::{Session, author};

/// Applies `change` to a chain in the configuration, and commits the result.
pub(crate) fn change_chain(
    session: &Session,
    bridge: &str,
    chain: &str,
    why: &str,
    change: impl FnOnce(&mut millrace_model::Chain) -> Result<()>,
) -> Result<()> {
    let client = session.client()?;
    let (json, revision) = client.config()?;
    let mut config =
        Config::from_json(&json).map_err(|errors| anyhow!("the daemon's configuration:\n{errors}"))?;
    let wanted = config
        .bridges
        .iter_mut()
        .filter(|candidate| candidate.name.as_str() == bridge)
        .flat_map(|bridge| &mut bridge.chains)
        .find(|candidate| candidate.name.as_str() == chain);
    let Some(wanted) = wanted else {
        bail!("{bridge} {chain}: no such chain is configured");
    };
    change(wanted)?;
    let options = ChangeOptions {
        author: author(),
        comment: why.to_owned(),
        ..ChangeOptions::default()
    };
    let committed = client.replace_config(&config.to_json(), Some(revision), &options)?;
    session.print(&committed, |committed| {
        format!("revision {}\n", committed.revision.number)
    })
}
