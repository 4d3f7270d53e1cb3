//! Check of the network namespace: the findings about interfaces are those of the daemon's namespace only if this program
//! runs in it.

use std::os::unix::fs::MetadataExt as _;

use millrace_api::view::Version;

use super::finding::Finding;

/// Returns the inode of the network namespace of this process, which identifies it.
pub(super) fn own() -> Option<u64> {
    let found = std::fs::metadata("/proc/self/ns/net").ok()?;
    Some(found.ino())
}

/// Compares the namespace of a daemon on this machine with that of this process; `None` if the daemon does not report its
/// namespace, or may be on another machine.
pub(super) fn of_daemon(api: &str, daemon: Option<&Version>, own: Option<u64>) -> Option<Finding> {
    const SUBJECT: &str = "namespace";
    let daemon = daemon.filter(|_| api.starts_with("unix:"))?;
    let theirs = daemon.network_namespace?;
    if theirs == own? {
        return None;
    }
    let enter = match daemon.pid {
        Some(pid) => format!("sudo nsenter --net=/proc/{pid}/ns/net millrace --api {api} doctor"),
        None => format!("run `millrace --api {api} doctor` in the namespace of millraced"),
    };
    Some(Finding::note(
        SUBJECT,
        "millraced runs in another network namespace: the findings about interfaces here are not about its ports".to_owned(),
        enter,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon(network_namespace: Option<u64>) -> Version {
        Version {
            version: "1".to_owned(),
            dpdk: None,
            uptime_seconds: 1.0,
            pid: Some(42),
            network_namespace,
        }
    }

    #[test]
    fn a_daemon_in_another_namespace_is_noted_with_the_command_that_enters_it() {
        let api = "unix:/run/m.sock";
        let finding = of_daemon(api, Some(&daemon(Some(7))), Some(8)).unwrap();
        let next_step = finding.next_step.unwrap();
        assert_eq!(
            next_step,
            "sudo nsenter --net=/proc/42/ns/net millrace --api unix:/run/m.sock doctor"
        );
        for (api, theirs) in [(api, Some(8)), (api, None), ("https://192.0.2.1:8443", Some(7))] {
            assert_eq!(
                of_daemon(api, Some(&daemon(theirs)), Some(8)).map(|found| found.found),
                None,
                "{api}"
            );
        }
        assert!(own().is_some());
    }
}
