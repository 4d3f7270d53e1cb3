//! Emulated paths: state, counters, and the ports that are their ends.

use millrace_api::view;
use millrace_datapath::io::wan::PathState;
use millrace_model::{Config, Device};

/// Returns the paths of the switch.
pub(super) fn wans(states: &[PathState], config: &Config) -> Vec<view::WanPath> {
    states.iter().map(|state| wan(state, config)).collect()
}

fn wan(state: &PathState, config: &Config) -> view::WanPath {
    let end = |is_b: bool| {
        let ports = config
            .bridges
            .iter()
            .flat_map(|bridge| bridge.devices().map(move |device| (bridge, device)));
        let is_end = |device: &Device| matches!(device, Device::Wan(end) if end.name.as_str() == state.name && end.is_b == is_b);
        let mut ports = ports.filter(|(_, (_, device))| is_end(device));
        let named = ports
            .next()
            .map(|(bridge, (name, _))| format!("{}/{name}", bridge.name));
        match (state.is_open[usize::from(is_b)], named) {
            (true, Some(port)) => port,
            (false, Some(port)) => format!("{port} (down)"),
            (_, None) => "unused".to_owned(),
        }
    };
    let configured = config.wans.iter().find(|wan| wan.name.as_str() == state.name);
    let notes = configured.map(|wan| wan.settings().notes()).unwrap_or_default();
    let directions = ["a_to_b", "b_to_a"]
        .into_iter()
        .zip(&state.spec.directions)
        .zip(&state.stats)
        .zip(&notes);
    view::WanPath {
        name: state.name.clone(),
        ends: vec![end(false), end(true)],
        seed: state.spec.seed,
        directions: directions
            .map(|(((name, config), stats), notes)| view::WanDirection::new(name, config, stats, notes))
            .collect(),
        interfaces: Vec::new(),
    }
}
