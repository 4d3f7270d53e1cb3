//! Controllers of a bridge, and the addresses at which it accepts controllers.

use millrace_model as model;

use crate::one::One;
use crate::place::ControllerRow;
use crate::rows::View;
use crate::unread;

/// Adds the controllers of the row to the bridge, and returns the place of each row.
pub(crate) fn controllers(
    one: &mut One<'_, '_>,
    view: &View<'_>,
    bridge: &mut model::Bridge,
) -> Vec<ControllerRow> {
    let views = view.refer(one.replica, "controller", "Controller");
    let protocols: Vec<_> = view.texts("protocols").collect();
    let speaks = protocols.is_empty() || protocols.contains(&"OpenFlow13");
    views
        .iter()
        .map(|controller| {
            let target = controller.text("target").unwrap_or("");
            unread::check(controller, &controller.row_name(), one.faults);
            let added = match speaks {
                true => add(one, controller, target, bridge),
                false => Err(format!(
                    "protocols {}: the switch speaks OpenFlow13; expected it among them",
                    protocols.join(",")
                )),
            };
            let (target, error) = match added {
                Ok(target) => (target, None),
                Err(reason) => {
                    one.faults.refuse(&controller.row_name(), &*reason);
                    (target.to_owned(), Some(reason))
                }
            };
            ControllerRow {
                uuid: controller.uuid,
                target,
                error,
            }
        })
        .collect()
}

/// Adds a controller to the bridge, and returns its target as the model prints it.
fn add(
    one: &mut One<'_, '_>,
    view: &View<'_>,
    text: &str,
    bridge: &mut model::Bridge,
) -> Result<String, String> {
    if matches!(text.split(':').next(), Some("ptcp" | "pssl" | "punix")) {
        let target = text
            .parse::<model::ListenTarget>()
            .map_err(|error| error.to_string())?;
        if text.starts_with("ptcp:") && !text.trim_start_matches("ptcp:").contains(':') {
            one.faults.ignore(
                &view.row_name(),
                format!("the switch listens at {target} only: expected ptcp:PORT:0.0.0.0 if any host may control the bridge"),
            );
        }
        let mut listener = model::Listener::new(target);
        // A host that is not loopback was asked for by name.
        listener.insecure = listener
            .target
            .address()
            .is_some_and(|address| !address.ip().is_loopback())
            && !listener.target.is_tls();
        if let Some(probe) = probe(view) {
            listener.echo_interval_s = probe;
        }
        for column in OF_CONNECTIONS.into_iter().filter(|column| view.has(column)) {
            one.faults.ignore(
                &view.row_name(),
                format!(
                    "{column} has no effect on a listener: expected a target tcp:HOST:PORT or ssl:HOST:PORT"
                ),
            );
        }
        unread_modes(one, view);
        let target = listener.target.to_string();
        bridge.listen.push(listener);
        return Ok(target);
    }
    let target = text
        .parse::<model::ControllerTarget>()
        .map_err(|error| error.to_string())?;
    if target.is_tls() && bridge.tls.is_none() {
        return Err("ssl: without keys: expected `ovs-vsctl set-ssl KEY CERTIFICATE CA`".to_owned());
    }
    let mut controller = model::Controller::new(target);
    if let Some(probe) = probe(view) {
        controller.echo_interval_s = probe;
    }
    if let Some(backoff) = view.integer("max_backoff") {
        let seconds = u16::try_from(backoff / 1000).unwrap_or(u16::MAX).clamp(1, 3600);
        controller.max_backoff_s = model::MaxBackoff::new(seconds).unwrap_or(controller.max_backoff_s);
    }
    let count = |column: &str| view.integer(column).and_then(|value| u32::try_from(value).ok());
    controller.packet_in_rate =
        count("controller_rate_limit").and_then(|rate| model::PacketInRate::new(rate).ok());
    if let Some(burst) =
        count("controller_burst_limit").and_then(|burst| model::PacketInBurst::new(burst).ok())
    {
        controller.packet_in_burst = burst;
    }
    unread_modes(one, view);
    let target = controller.target.to_string();
    bridge.controllers.push(controller);
    Ok(target)
}

/// Names the modes of connections that the switch does not have.
fn unread_modes(one: &mut One<'_, '_>, view: &View<'_>) {
    if view.text("connection_mode") == Some("in-band") {
        one.faults.ignore(
            &view.row_name(),
            "connection_mode in-band: connections are out of band here",
        );
    }
    if view.boolean("enable_async_messages") == Some(false) {
        one.faults.ignore(
            &view.row_name(),
            "enable_async_messages false: a controller chooses them by set_async here",
        );
    }
}

/// Columns that a listener does not have.
const OF_CONNECTIONS: [&str; 3] = ["max_backoff", "controller_rate_limit", "controller_burst_limit"];

/// Returns the column `inactivity_probe`, in milliseconds, as an interval; 0 sends none.
fn probe(view: &View<'_>) -> Option<model::EchoInterval> {
    let probe = view.integer("inactivity_probe")?;
    // Less than a second is rounded up: 0 would mean none.
    let seconds = u64::try_from(probe).unwrap_or(0).div_ceil(1000).min(3600);
    model::EchoInterval::new(u16::try_from(seconds).unwrap_or(3600)).ok()
}
