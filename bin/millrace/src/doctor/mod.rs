//! `millrace doctor`: checks of this machine, each with the command that corrects a problem.
//!
//! A check of the machine reads files below a root directory only, so that tests can give it any machine; the checks of
//! the ports (`offloads`, `classifiers`) ask the daemon and the kernel. A finding is `bad` if the switch cannot run, a `note` if it runs
//! with restrictions, `good` otherwise.

mod classifiers;
mod cpu;
mod daemon;
mod dpdk;
mod finding;
mod machine;
mod memory;
mod namespace;
mod network;
mod offloads;
mod rights;

use std::process::ExitCode;

use anyhow::Result;
use millrace_api::view::{Port, Version};

pub(crate) use offloads::advice;

use finding::{Finding, Verdict};
use machine::Machine;

use crate::output::Session;

pub(crate) fn run(session: &Session) -> Result<ExitCode> {
    let machine = Machine::this();
    let version = session.client().and_then(|client| Ok(client.version()?)).ok();
    let mut findings = examine(&machine, version.as_ref());
    findings.extend(namespace::of_daemon(
        session.api(),
        version.as_ref(),
        namespace::own(),
    ));
    let ports = ports(session).unwrap_or_default();
    findings.extend(offloads::of_ports(&ports));
    findings.extend(classifiers::of_ports(&ports));
    findings.push(daemon::answers(session));
    session.print(&findings, |findings| text(findings))?;
    let is_bad = findings.iter().any(|finding| finding.verdict == Verdict::Bad);
    Ok(if is_bad {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Returns the ports of all bridges; `None` if no daemon responds.
fn ports(session: &Session) -> Option<Vec<Port>> {
    let client = session.client().ok()?;
    let mut ports = Vec::new();
    for bridge in client.bridges().ok()? {
        ports.extend(client.ports(&bridge.name).ok()?);
    }
    Some(ports)
}

/// Runs all checks. `daemon` is the version information of the running daemon, if one responds.
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
        if let Some(next_step) = &finding.next_step {
            for line in next_step.lines() {
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
        (0, 0) => "no problem found\n".to_owned(),
        (0, 1) => "a switch can run here; 1 setting could be better\n".to_owned(),
        (0, notes) => format!("a switch can run here; {notes} settings could be better\n"),
        (1, _) => "1 problem prevents a switch from running here\n".to_owned(),
        (bad, _) => format!("{bad} problems prevent a switch from running here\n"),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::tests::machine;

    #[test]
    fn every_finding_that_is_not_good_names_a_next_step_even_on_an_empty_machine() {
        let (_dir, machine) = machine(&[]);
        for finding in examine(&machine, None) {
            assert_eq!(
                finding.next_step.is_none(),
                finding.verdict == Verdict::Good,
                "{finding:?}"
            );
        }
        assert!(text(&examine(&machine, None)).contains("a switch from running here"));
    }

    #[test]
    fn this_machine_can_be_examined() {
        assert!(examine(&Machine::this(), None).len() > 10);
    }
}
