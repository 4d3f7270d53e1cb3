//! Applies a configuration to the emulated WAN paths.

use std::path::Path;
use std::sync::Arc;

use millrace_datapath::io::wan::{PathSpec, Wans};
use millrace_model as model;
use millrace_wan_emulator::Scenario;

use crate::problem::Problem;

/// Configures the paths; the caller opens their ports afterwards. Returns the paths that could
/// not be configured.
pub(crate) fn apply(wans: &Arc<Wans>, config: &model::Config) -> Vec<Problem> {
    let configure = |wan: &model::Wan| {
        let configured = spec(wan).and_then(|spec| {
            wans.configure(wan.name.as_str(), &spec)
                .map_err(|error| error.to_string())
        });
        let problem = |reason| Problem::new(format!("wan {}", wan.name), reason);
        configured.err().map(problem)
    };
    config.wans.iter().filter_map(configure).collect()
}

/// Removes the paths that the configuration does not contain. The caller has closed their ports.
pub(crate) fn retain(wans: &Arc<Wans>, config: &model::Config) {
    let names: Vec<&str> = config.wans.iter().map(|wan| wan.name.as_str()).collect();
    wans.retain(&names);
}

fn spec(wan: &model::Wan) -> Result<PathSpec, String> {
    let scenario = wan.scenario.as_deref().map(scenario).transpose()?;
    Ok(PathSpec {
        directions: wan.directions().map_err(|error| error.to_string())?,
        seed: wan.seed.get().into(),
        scenario,
    })
}

/// Reads a scenario file.
fn scenario(path: &Path) -> Result<Scenario, String> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        format!(
            "the scenario {}: {error}. To fix it: create the file, or remove `scenario`",
            path.display()
        )
    })?;
    Scenario::parse(&text).map_err(|error| format!("the scenario {}: {error}", path.display()))
}
