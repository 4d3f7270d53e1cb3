//! Constraints on emulated paths: unique names, consistent settings, and two ports for each path that has a
//! port.

use std::collections::BTreeMap;

use millrace_wan_emulator::{DirectionId, NoSources, Plan, PlanError, Seed};

use super::checks::{Checks, Unique};
use super::walk::all_devices;
use crate::config::Config;
use crate::device::Device;
use crate::error::Path;
use crate::wan::Wan;

impl Checks {
    pub(super) fn wans(&mut self, config: &Config) {
        let mut names = Unique::new("path name");
        let root = Path::default().key("wan");
        for (index, wan) in config.wans.iter().enumerate() {
            let path = root.index(index);
            names.check(&wan.name, &wan.name, path.key("name"), &mut self.issues);
            self.wan(wan, &path);
        }
        let mut ends: BTreeMap<&str, [Option<Path>; 2]> = BTreeMap::new();
        for (device, path) in all_devices(config) {
            let Device::Wan(end) = device else { continue };
            if !config.wans.iter().any(|wan| wan.name == end.name) {
                self.conflict(
                    path.clone(),
                    format!("there is no path `{}`: expected [[wan]] with this name", end.name),
                );
            }
            let [a, b] = ends.entry(end.name.as_str()).or_default();
            *if end.is_b { b } else { a } = Some(path);
        }
        for (name, ends) in ends {
            let (one, other) = match ends {
                [Some(a), None] => (a, "b"),
                [None, Some(b)] => (b, "a"),
                _ => continue,
            };
            self.conflict(
                one,
                format!(
                    "path `{name}` has one end: expected another port with the device wan:{name},{other}"
                ),
            );
        }
    }

    fn wan(&mut self, wan: &Wan, path: &Path) {
        let directions = match wan.directions() {
            Ok(directions) => directions,
            Err(error) => {
                let table = path.key(error.direction.unwrap_or("path"));
                let key = match error.key.as_str() {
                    "memory" => path.key("memory"),
                    key => table.key(&key.replace('-', "_")),
                };
                self.conflict(key, error.reason);
                return;
            }
        };
        for (number, (config, toward)) in directions
            .iter()
            .zip([DirectionId::Forward, DirectionId::Backward])
            .enumerate()
        {
            let problem = match Plan::new(config, Seed::new(0), toward, &NoSources) {
                // The settings are already checked. A file that a setting names is read only when the path is
                // created.
                Ok(_) | Err(PlanError::Config(_)) => continue,
                Err(problem) => problem,
            };
            let direction = if number == 0 { "a_to_b" } else { "b_to_a" };
            let key = if wan.memory.is_some() { "memory" } else { "name" };
            self.conflict(
                path.key(key),
                format!("path `{}`, {direction}: {problem}", wan.name),
            );
            return;
        }
    }
}
