//! `bridge`, `port` and `controller`: a command adds, changes or removes one item of the configuration, in one
//! transaction. The whole resulting configuration is checked before it is sent.

use std::fmt::Display;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Result, anyhow, bail};
use millrace_api::client::{ChangeOptions, ClientError};
use millrace_model::{Bridge, Config, Controller, ControllerTarget, Device, Port, WanEnd};
use millrace_types::PortNo;

use crate::change::finish;
use crate::cli::{
    BridgeCommand, BridgePort, ChangeArgs, ControllerCommand, ControllerRemove, PortAdd, PortCommand,
    PortRemove,
};
use crate::flow;
use crate::output::{Session, author};
use crate::settings::assigned;

/// The number of attempts of a change while others commit at the same time.
const ATTEMPTS: usize = 8;
/// The HTTP status of a change whose revision is no longer the newest (RFC 9110, section 15.5.13).
const PRECONDITION_FAILED: u16 = 412;

pub(crate) fn bridge(session: &Session, args: &BridgeCommand) -> Result<ExitCode> {
    match args {
        BridgeCommand::Add(add) => commit(session, &add.change, |config| {
            let at = config
                .bridges
                .iter()
                .position(|bridge| bridge.name.as_str() == add.bridge);
            let at = match at {
                Some(_) if !add.exists.may_exist => bail!(
                    "there is a bridge `{0}` already: `millrace bridge set {0} KEY=VALUE` changes it, and --may-exist \
                     accepts it",
                    add.bridge
                ),
                Some(at) => at,
                None => {
                    config.bridges.push(Bridge::new(parse(&add.bridge)?));
                    config.bridges.len() - 1
                }
            };
            set(
                &mut config.bridges,
                at,
                &Bridge::section(),
                &add.settings.settings,
            )
        }),
        BridgeCommand::Set(change) => commit(session, &change.change, |config| {
            let at = position_of_bridge(config, &change.bridge)?;
            set(
                &mut config.bridges,
                at,
                &Bridge::section(),
                &change.settings.settings,
            )
        }),
        BridgeCommand::Remove(remove) => commit(session, &remove.change, |config| {
            match position_of_bridge(config, &remove.bridge) {
                Err(_) if remove.exists.if_exists => {}
                at => drop(config.bridges.remove(at?)),
            }
            Ok(())
        }),
    }
}

pub(crate) fn port(session: &Session, args: &PortCommand) -> Result<ExitCode> {
    match args {
        PortCommand::Add(add) => commit(session, &add.change, |config| add_ports(config, add)),
        PortCommand::Set(change) => commit(session, &change.change, |config| {
            let bridge = the_bridge(config, &change.bridge)?;
            let at = position_of_port(bridge, &change.port)?;
            set(&mut bridge.ports, at, &Port::section(), &change.settings.settings)
        }),
        PortCommand::Remove(remove) => commit(session, &remove.change, |config| remove_ports(config, remove)),
        PortCommand::Reset { bridge, port } => {
            flow::reset_ports(session, bridge, port.as_deref())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

pub(crate) fn controller(session: &Session, args: &ControllerCommand) -> Result<ExitCode> {
    match args {
        ControllerCommand::Add(add) => commit(session, &add.change, |config| {
            let target: ControllerTarget = parse(&add.target)?;
            let controllers = &mut the_bridge(config, &add.bridge)?.controllers;
            let at = controllers
                .iter()
                .position(|controller| controller.target == target);
            let at = match at {
                Some(_) if !add.exists.may_exist => bail!(
                    "bridge {} has the controller {target} already: --may-exist accepts it",
                    add.bridge
                ),
                Some(at) => at,
                None => {
                    controllers.push(Controller::new(target));
                    controllers.len() - 1
                }
            };
            set(controllers, at, &Controller::section(), &add.settings.settings)
        }),
        ControllerCommand::Remove(remove) => commit(session, &remove.change, |config| {
            remove_controllers(config, remove)
        }),
    }
}

/// Commits the configuration that `edit` makes of the newest one, and follows it as `apply` does.
fn commit(
    session: &Session,
    args: &ChangeArgs,
    edit: impl Fn(&mut Config) -> Result<()>,
) -> Result<ExitCode> {
    let client = session.client()?;
    let options = ChangeOptions {
        dry_run: args.dry_run,
        confirm_within: args.confirm_within,
        author: author(),
        comment: args.why.comment.clone(),
        ..ChangeOptions::default()
    };
    let mut attempt = 1;
    loop {
        let (json, revision) = client.config()?;
        let mut config =
            Config::from_json(&json).map_err(|errors| anyhow!("the daemon's configuration:\n{errors}"))?;
        edit(&mut config)?;
        config
            .validate()
            .map_err(|errors| anyhow!("the change is refused:\n{errors}"))?;
        let expected = Some(args.expect.unwrap_or(revision));
        match client.replace_config(&config.to_json(), expected, &options) {
            Ok(committed) => return finish(session, committed, revision, args),
            Err(ClientError::Problem(problem))
                if problem.status == PRECONDITION_FAILED && args.expect.is_none() && attempt < ATTEMPTS =>
            {
                attempt += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Applies `KEY=VALUE` settings to an item of a list.
fn set<T>(
    list: &mut [T],
    at: usize,
    section: &millrace_model::schema::Section,
    settings: &[String],
) -> Result<()>
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    if let Some(item) = list.get_mut(at) {
        *item = assigned(item, section, settings)?;
    }
    Ok(())
}

fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T> {
    text.parse().map_err(|error| anyhow!("{error}"))
}

fn add_ports(config: &mut Config, add: &PortAdd) -> Result<()> {
    let device = match &add.device {
        Some(device) => parse(device)?,
        None => parse(&format!("kernel:{}", add.port))?,
    };
    let peer = match &add.peer {
        None => None,
        Some(peer) => {
            let far = far_end(&device).ok_or_else(|| {
                anyhow!(
                    "--peer: {device} has no other end in this switch: expected link:NAME, wan:NAME,a or wan:NAME,b"
                )
            })?;
            Some((peer, far))
        }
    };
    let bridge = the_bridge(config, &add.bridge)?;
    let is_new = bridge.port(&add.port).is_none();
    let at = add_port(bridge, &add.port, &device, add.exists.may_exist)?;
    if let Some(port) = bridge.ports.get_mut(at) {
        // Without --device, a port that exists keeps its device.
        if is_new || add.device.is_some() {
            port.device = device;
        }
        if let Some(number) = add.number {
            port.number = PortNo::ordinary(number)?;
        }
    }
    set(&mut bridge.ports, at, &Port::section(), &add.settings.settings)?;
    if let Some((BridgePort { bridge, port }, far)) = peer {
        let bridge = the_bridge(config, bridge)?;
        let at = add_port(bridge, port, &far, add.exists.may_exist)?;
        if let Some(port) = bridge.ports.get_mut(at) {
            port.device = far;
        }
    }
    Ok(())
}

/// Adds a port with the lowest free number to a bridge, or finds it there. Returns its index.
fn add_port(bridge: &mut Bridge, name: &str, device: &Device, may_exist: bool) -> Result<usize> {
    match bridge.ports.iter().position(|port| port.name.as_str() == name) {
        Some(_) if !may_exist => bail!(
            "bridge {0} has a port `{name}` already: `millrace port set {0} {name} KEY=VALUE` changes it, and \
             --may-exist accepts it",
            bridge.name
        ),
        Some(at) => Ok(at),
        None => {
            let number = free_number(bridge)?;
            bridge.ports.push(Port::new(parse(name)?, number, device.clone()));
            Ok(bridge.ports.len() - 1)
        }
    }
}

fn remove_ports(config: &mut Config, remove: &PortRemove) -> Result<()> {
    let found = the_bridge(config, &remove.bridge)
        .and_then(|bridge| position_of_port(bridge, &remove.port).map(|at| (bridge, at)));
    let removed = match found {
        Err(_) if remove.exists.if_exists => return Ok(()),
        found => {
            let (bridge, at) = found?;
            bridge.ports.remove(at)
        }
    };
    if remove.peer {
        let far = far_end(&removed.device).ok_or_else(|| {
            anyhow!(
                "--peer: {} of port `{}` has no other end in this switch",
                removed.device,
                remove.port
            )
        })?;
        for bridge in &mut config.bridges {
            bridge.ports.retain(|port| port.device != far);
        }
    }
    Ok(())
}

fn remove_controllers(config: &mut Config, remove: &ControllerRemove) -> Result<()> {
    let bridge = match the_bridge(config, &remove.bridge) {
        Err(_) if remove.exists.if_exists => return Ok(()),
        bridge => bridge?,
    };
    let Some(target) = &remove.target else {
        bridge.controllers.clear();
        return Ok(());
    };
    let target: ControllerTarget = parse(target)?;
    let at = bridge
        .controllers
        .iter()
        .position(|controller| controller.target == target);
    match at {
        Some(at) => drop(bridge.controllers.remove(at)),
        None if remove.exists.if_exists => {}
        None => bail!(
            "bridge {} has no controller {target}: {}",
            remove.bridge,
            known(bridge.controllers.iter().map(|controller| &controller.target))
        ),
    }
    Ok(())
}

/// Returns the device at the other end of a link or an emulated path.
fn far_end(device: &Device) -> Option<Device> {
    match device {
        Device::Link(_) => Some(device.clone()),
        Device::Wan(end) => Some(Device::Wan(WanEnd {
            is_b: !end.is_b,
            ..end.clone()
        })),
        _ => None,
    }
}

/// Returns the lowest port number that no port, chain or hop of the bridge has.
fn free_number(bridge: &Bridge) -> Result<PortNo> {
    let of_chains = bridge.chains.iter().flat_map(|chain| {
        let hops = chain.hops.iter().filter_map(|hop| hop.number);
        hops.chain(chain.far).chain([chain.number])
    });
    let ports = bridge.ports.iter().map(|port| port.number);
    let taken: Vec<PortNo> = ports.chain(of_chains).collect();
    let mut numbers = (1..).map_while(|number| PortNo::ordinary(number).ok());
    numbers
        .find(|number| !taken.contains(number))
        .ok_or_else(|| anyhow!("every port number of bridge {} is in use", bridge.name))
}

fn position_of_bridge(config: &Config, name: &str) -> Result<usize> {
    let found = config
        .bridges
        .iter()
        .position(|bridge| bridge.name.as_str() == name);
    found.ok_or_else(|| {
        anyhow!(
            "no bridge `{name}` is configured: {} (`millrace bridge add {name}` adds it)",
            known(config.bridges.iter().map(|bridge| &bridge.name))
        )
    })
}

fn the_bridge<'a>(config: &'a mut Config, name: &str) -> Result<&'a mut Bridge> {
    let at = position_of_bridge(config, name)?;
    config
        .bridges
        .get_mut(at)
        .ok_or_else(|| anyhow!("no bridge `{name}` is configured"))
}

fn position_of_port(bridge: &Bridge, name: &str) -> Result<usize> {
    let found = bridge.ports.iter().position(|port| port.name.as_str() == name);
    found.ok_or_else(|| {
        let names = known(bridge.ports.iter().map(|port| &port.name));
        anyhow!("bridge {} has no port `{name}` configured: {names}", bridge.name)
    })
}

/// Returns the items that exist, as the end of an error.
fn known<T: Display>(items: impl Iterator<Item = T>) -> String {
    let names: Vec<String> = items.map(|item| item.to_string()).collect();
    match names.is_empty() {
        true => "there is none".to_owned(),
        false => format!("expected one of {}", names.join(", ")),
    }
}
