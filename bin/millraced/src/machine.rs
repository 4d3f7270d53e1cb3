//! What this machine has of what a configuration names and only a start would use: cores, and what the REST API
//! needs. Tried when a configuration is checked or applied, so that the next start does not fail for it.

use std::collections::BTreeSet;

use millrace_model::{Config, ConfigError, ConfigErrors, Path};

/// The machine as this process found it.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// Those that workers can be bound to; `None` where the system does not tell: none is refused then.
    cores: Option<BTreeSet<usize>>,
}

impl Machine {
    /// Looks at it; to be called before any thread is bound to a core.
    pub(crate) fn look(no_dpdk: bool) -> Machine {
        let cores: BTreeSet<usize> = usable_cores(no_dpdk).into_iter().collect();
        Machine {
            cores: (!cores.is_empty()).then_some(cores),
        }
    }

    /// Whether a start with `config` would find what it names; all of it is tried.
    pub(crate) fn check(&self, config: &Config) -> Result<(), ConfigErrors> {
        let mut errors = self.cores(config);
        // The switch may be running with this very configuration.
        errors.extend(millrace_api::server::probe(&config.api, true));
        ConfigErrors::unless_empty(errors)
    }

    /// The same for a change of a running switch: what the change leaves as it is in `head` is not tried, so that a
    /// file that went away does not keep people from mending something else. `running` is what the process started
    /// with: that address is its own.
    pub(crate) fn check_change(
        &self,
        config: &Config,
        head: &Config,
        running: &Config,
    ) -> Result<(), ConfigErrors> {
        let mut errors = Vec::new();
        if config.system.worker_cores != head.system.worker_cores {
            errors.extend(self.cores(config));
        }
        if config.api != head.api {
            let is_ours = running.api.enabled && running.api.listen.port() == config.api.listen.port();
            errors.extend(millrace_api::server::probe(&config.api, is_ours));
        }
        ConfigErrors::unless_empty(errors)
    }

    fn cores(&self, config: &Config) -> Vec<ConfigError> {
        let Some(usable) = &self.cores else {
            return Vec::new();
        };
        let list = Path::default().key("system").key("worker_cores");
        let cores = config.system.worker_cores.iter().enumerate();
        let missing = cores.filter(|(_, core)| !usable.contains(&usize::from(core.get())));
        let error = |(at, core)| {
            let message = format!(
                "there is no core {core} that this process may use: expected one of {}",
                ranges(usable)
            );
            ConfigError::unavailable(list.index(at), message)
        };
        missing.map(error).collect()
    }
}

/// DPDK keeps to the cores that the process was started on; threads without it need not.
fn usable_cores(no_dpdk: bool) -> Vec<usize> {
    #[cfg(feature = "dpdk")]
    if !no_dpdk {
        let cores = millrace_dpdk::thread::allowed_cores();
        return cores.into_iter().map(|core| usize::from(core.0)).collect();
    }
    let _without_dpdk = no_dpdk;
    millrace_datapath::usable_cores().unwrap_or_default()
}

/// `0 to 3, 8`
fn ranges(cores: &BTreeSet<usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for core in cores {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *core => *last = *core,
            _ => ranges.push((*core, *core)),
        }
    }
    let text = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use super::*;

    fn config(text: &str) -> Config {
        Config::from_toml("m.toml", text).unwrap()
    }

    #[test]
    fn a_core_that_is_not_there_is_named_with_those_that_are() {
        let machine = Machine {
            cores: Some(BTreeSet::from([0, 1, 2, 8])),
        };
        let good = config("[system]\nworker_cores = [2, 8]\n[api]\nenabled = false\n");
        assert_eq!(machine.check(&good), Ok(()));
        let bad = config("[system]\nworker_cores = [2, 900]\n[api]\nenabled = false\n");
        let told = "/system/worker_cores/1: there is no core 900 that this process may use: expected one of 0 to 2, 8";
        assert_eq!(machine.check(&bad).unwrap_err().to_string(), told);
        assert_eq!(
            machine.check_change(&bad, &good, &good).unwrap_err().to_string(),
            told
        );
        assert_eq!(machine.check_change(&bad, &bad, &good), Ok(()), "nothing new");
        assert_eq!(Machine { cores: None }.check(&bad), Ok(()), "nobody knows");
    }

    #[test]
    fn a_change_is_tried_where_it_changes_something_and_the_own_address_is_no_fault() {
        let machine = Machine::look(true);
        let running = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = |listener: &std::net::TcpListener, rest: &str| {
            let address = listener.local_addr().unwrap();
            config(&format!("[api]\nlisten = \"{address}\"\n{rest}"))
        };
        let started = at(&running, "");
        let without_token = at(&running, "token_file = \"/nope\"\n");
        let moved = at(&other, "");
        let refused = |config: &Config, head: &Config| match machine.check_change(config, head, &started) {
            Ok(()) => Vec::new(),
            Err(errors) => errors.iter().map(|error| error.path.pointer()).collect(),
        };
        assert_eq!(refused(&without_token, &started), ["/api/token_file"]);
        assert_eq!(refused(&without_token, &without_token), [""; 0]);
        assert_eq!(refused(&moved, &started), ["/api/listen"]);
        assert_eq!(refused(&started, &moved), [""; 0]);
    }
}
