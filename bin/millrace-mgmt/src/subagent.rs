//! The AgentX subagent: a thread that shows the switch to the SNMP agent of this machine.

use anyhow::{Context as _, Result};
use millrace_agentx::serve;
use millrace_api::client::Client;

use crate::settings::Agentx;

/// The file with the name of the machine (proc(5)).
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Returns what the thread needs, if it is enabled; the name of the machine is read here, before the process drops its rights.
pub(crate) fn settings(given: &Agentx) -> Result<Option<millrace_agentx::Settings>> {
    if !given.enabled {
        return Ok(None);
    }
    let host = std::fs::read_to_string(HOST_NAME).with_context(|| format!("agentx: {HOST_NAME}"))?;
    Ok(Some(millrace_agentx::Settings {
        master: given.master.clone(),
        context: given.context.clone(),
        bridge: given.bridge.clone(),
        host: host.trim_end().to_owned(),
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
