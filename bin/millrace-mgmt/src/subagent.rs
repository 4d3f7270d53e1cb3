//! The AgentX subagent: a thread that shows the switch to the SNMP agent of this machine.

use anyhow::{Context as _, Result};
use millrace_agentx::serve;
use millrace_api::client::Client;
use millrace_program::host_name;

use crate::settings::Agentx;

/// Returns what the thread needs, if it is enabled; the name of the machine is read here, before the process drops its rights.
pub(crate) fn settings(given: &Agentx) -> Result<Option<millrace_agentx::Settings>> {
    if !given.enabled {
        return Ok(None);
    }
    Ok(Some(millrace_agentx::Settings {
        master: given.master.clone(),
        context: given.context.clone(),
        bridge: given.bridge.clone(),
        host: host_name().context("agentx")?,
    }))
}

/// Starts the thread, which connects again whenever the SNMP agent goes.
pub(crate) fn start(settings: millrace_agentx::Settings, switch: Client) -> Result<()> {
    std::thread::Builder::new()
        .name("agentx".to_owned())
        .spawn(move || serve(&settings, &switch))
        .map(drop)
        .context("a thread for agentx")
}
