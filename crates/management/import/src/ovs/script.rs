//! The commands of a script: those of ovs-vsctl are executed, the others are named.

use super::commands::Call;
use super::database::Database;
use super::rows::Named;
use super::vsctl::subcommands;
use super::words;
use crate::finding::Findings;

/// Programs of a script whose settings have another place here.
const OTHERS: [(&str, &str); 6] = [
    (
        "ovs-ofctl",
        "flow entries are no configuration; `millrace flow add` takes the same ones",
    ),
    ("ovs-appctl", "docs/from-open-vswitch.md has the command for it"),
    ("ovs-dpctl", "there is no datapath of the kernel"),
    ("ovs-ctl", "`systemctl start millraced` starts the switch"),
    ("ovsdb-client", "expected ovs-vsctl"),
    (
        "ovsdb-tool",
        "expected ovs-vsctl, or the database in place of the script",
    ),
];

/// Words of a shell whose commands run several times, or perhaps.
const CONTROL: [&str; 10] = [
    "if", "elif", "else", "for", "while", "until", "case", "function", "then", "do",
];

/// Executes the commands of a script.
pub(super) fn run(name: &str, text: &str) -> (Database, Findings) {
    let mut database = Database::new();
    let mut findings = Findings::default();
    for command in words::commands(text) {
        let place = format!("{name}:{}", command.line);
        let mut rest = command.words.as_slice();
        while let [word, more @ ..] = rest
            && (matches!(
                word.as_str(),
                "sudo" | "exec" | "-n" | "-E" | "fi" | "done" | "esac" | "}" | "{"
            ) || CONTROL.contains(&word.as_str()) && more.iter().any(|word| is_vsctl(word)))
        {
            if CONTROL.contains(&word.as_str()) {
                findings.difference(
                    &place,
                    format!("`{word}` of a shell is not executed: the commands in it count once"),
                );
            }
            rest = more;
        }
        let Some((program, arguments)) = rest.split_first() else {
            continue;
        };
        if !is_vsctl(program) {
            let program = program.rsplit('/').next().unwrap_or(program);
            match OTHERS.iter().find(|(other, _)| *other == program) {
                Some((_, instead)) => findings.difference(&place, format!("{program}: {instead}")),
                None => findings.note(
                    &place,
                    format!("`{program}` is not executed: only ovs-vsctl is read"),
                ),
            }
            continue;
        }
        if let Some(reason) = &command.unknown {
            findings.difference(&place, format!("the command is left out: {reason}"));
            continue;
        }
        let before = database.clone();
        database.line = command.line;
        let (commands, is_without_effect) = subcommands(arguments);
        let mut call = Call {
            database: &mut database,
            named: Named::new(),
        };
        if let Err(reason) = call.execute(&commands) {
            findings.difference(
                &place,
                format!("the command is left out, because ovs-vsctl would refuse it: {reason}"),
            );
            database = before;
        } else if is_without_effect {
            database = before;
        }
        database.collect_garbage();
    }
    database.line = 0;
    (database, findings)
}

fn is_vsctl(word: &str) -> bool {
    word == "ovs-vsctl" || word.ends_with("/ovs-vsctl")
}
