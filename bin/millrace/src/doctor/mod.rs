//! `millrace doctor`: what keeps a switch from running well on this machine, and the command that mends it.
//!
//! Every check reads files under a root directory, so that tests show it machines of any kind. A finding is
//! `bad` if the switch cannot run so, a `note` if it runs with less, `good` otherwise.

mod cpu;
mod daemon;
mod dpdk;
mod memory;
mod network;
mod offloads;
mod rights;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use millrace_api::view::Version;
use serde::Serialize;

pub(crate) use offloads::advice;

use crate::output::Session;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// As it should be.
    Good,
    /// The switch runs, with less.
    Note,
    /// The switch cannot run so.
    Bad,
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    /// What was checked.
    subject: &'static str,
    verdict: Verdict,
    /// What was found.
    found: String,
    /// What it means, and the command that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn good(subject: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            subject,
            verdict: Verdict::Good,
            found: found.into(),
            remedy: None,
        }
    }

    fn note(subject: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding {
            subject,
            verdict: Verdict::Note,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }

    fn bad(subject: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding {
            subject,
            verdict: Verdict::Bad,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }
}

/// A machine, as its files describe it.
struct Machine {
    root: PathBuf,
}

impl Machine {
    /// Returns the machine that this runs on.
    fn this() -> Machine {
        Machine {
            root: PathBuf::from("/"),
        }
    }

    /// Returns the text of a file; `None` if it cannot be read.
    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }

    fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Returns the names in a directory, sorted; none if it cannot be read.
    fn list(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.join(path))
            .into_iter()
            .flatten()
            .flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Returns the last part of what a link points to.
    fn link_target(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.root.join(path)).ok()?;
        Some(Path::new(&target).file_name()?.to_str()?.to_owned())
    }
}

pub(crate) fn run(session: &Session) -> Result<ExitCode> {
    let machine = Machine::this();
    let version = session.client().and_then(|client| Ok(client.version()?)).ok();
    let mut findings = examine(&machine, version.as_ref());
    findings.extend(offloads::of_ports(&machine, session));
    findings.push(daemon::answers(session));
    session.print(&findings, |findings| text(findings))?;
    let is_bad = findings.iter().any(|finding| finding.verdict == Verdict::Bad);
    Ok(if is_bad {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Examines the machine; `daemon` is what the running daemon says of itself.
fn examine(machine: &Machine, daemon: Option<&Version>) -> Vec<Finding> {
    [
        cpu::instructions(machine),
        cpu::cores(machine),
        cpu::governor(machine),
        rights::capabilities(machine),
        rights::locked_memory(machine),
        memory::huge_pages(machine, daemon),
        dpdk::libraries(machine),
        dpdk::drivers(machine),
        network::af_xdp(machine),
        network::vfio(machine),
        network::nics(machine),
        network::lab_tools(machine),
    ]
    .into()
}

fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let mark = match finding.verdict {
            Verdict::Good => "good",
            Verdict::Note => "note",
            Verdict::Bad => "BAD ",
        };
        text += &format!("{mark}  {:<14} {}\n", finding.subject, finding.found);
        if let Some(remedy) = &finding.remedy {
            for line in remedy.lines() {
                text += &format!("{:21}{line}\n", "");
            }
        }
    }
    let count = |verdict| {
        findings
            .iter()
            .filter(|finding| finding.verdict == verdict)
            .count()
    };
    let (bad, notes) = (count(Verdict::Bad), count(Verdict::Note));
    text += &match (bad, notes) {
        (0, 0) => "all is well\n".to_owned(),
        (0, 1) => "a switch runs here; 1 setting could be better\n".to_owned(),
        (0, notes) => format!("a switch runs here; {notes} settings could be better\n"),
        (1, _) => "1 problem keeps a switch from running here\n".to_owned(),
        (bad, _) => format!("{bad} problems keep a switch from running here\n"),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of these files; a target that begins with `->` is a link.
    pub(super) fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            match content.strip_prefix("->") {
                Some(target) => std::os::unix::fs::symlink(target, path).unwrap(),
                None => std::fs::write(path, content).unwrap(),
            }
        }
        let machine = Machine {
            root: dir.path().to_owned(),
        };
        (dir, machine)
    }

    #[test]
    fn every_finding_that_is_not_good_names_a_remedy_even_on_an_empty_machine() {
        let (_dir, machine) = machine(&[]);
        for finding in examine(&machine, None) {
            assert_eq!(
                finding.remedy.is_none(),
                finding.verdict == Verdict::Good,
                "{finding:?}"
            );
        }
        assert!(text(&examine(&machine, None)).contains("a switch from running here"));
    }

    #[test]
    fn this_machine_can_be_examined() {
        let machine = Machine {
            root: PathBuf::from("/"),
        };
        assert!(examine(&machine, None).len() > 10);
    }
}
