//! Switches: one file for each kind, with the same interface. The forwarding program runs in the switch's namespace,
//! which contains the switch ends of the links, and listens on the loopback interface of that namespace.

mod context;
mod linux_bridge;
mod millrace;
mod ovs;

use std::fs;
use std::time::Instant;

use crate::directory::LabDirectory;
use crate::progress::Progress;
use crate::state::Journal;
use crate::system::SystemError;
use crate::topology::{Switch, SwitchKind};
use crate::up::{UpError, UpOptions};
use context::SwitchContext;

/// Starts the forwarding program of `switch`; returns when it forwards.
pub(crate) fn start(
    switch: &Switch,
    options: &UpOptions,
    journal: &mut Journal,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), UpError> {
    let began = Instant::now();
    let dir = journal.directory().node(&switch.name);
    fs::create_dir_all(&dir).map_err(SystemError::file("create", &dir))?;
    let mut context = SwitchContext {
        switch,
        options,
        journal,
        progress,
    };
    match &switch.kind {
        SwitchKind::Millrace {
            device,
            control,
            workers,
        } => millrace::start(&mut context, *device, control, *workers)?,
        SwitchKind::LinuxBridge => linux_bridge::start(&mut context)?,
        SwitchKind::Ovs { control, ports } => ovs::start(&mut context, control, *ports)?,
    }
    progress(Progress::Ready {
        switch: &switch.name,
        took: began.elapsed(),
    });
    Ok(())
}

/// Returns the environment variables by which commands in the switch's namespace find the switch.
pub(crate) fn environment(switch: &Switch, directory: &LabDirectory) -> Vec<(String, String)> {
    match &switch.kind {
        SwitchKind::Millrace { .. } => millrace::environment(&directory.node(&switch.name)),
        SwitchKind::LinuxBridge => Vec::new(),
        SwitchKind::Ovs { .. } => ovs::environment(&directory.node(&switch.name)),
    }
}
