//! Generator of `docs/configuration.md`, the reference of the configuration file, from the schema.

use std::fmt::Write as _;

use crate::config::Config;
use crate::schema::{Key, Section, Shape, TakesEffect};
use crate::toml_writer::inline_json;

const HEAD: &str = "\
# The configuration file

<!-- Written by `MILLRACE_BLESS=1 cargo test -p millrace-model --test it reference::`; edit crates/config/model/src instead. -->

`millraced --config FILE` reads TOML. Unknown keys and invalid values are rejected, all errors at once, each with file, line
and column. The REST API takes the same tables and keys as JSON. An absent key has its default; in JSON, `null` is the
same as absent.

```toml
[[bridge]]
name = \"br0\"
controllers = [\"tcp:127.0.0.1:6653\"]
listen = [\"ptcp:6654:127.0.0.1\"]

[[bridge.port]]
name = \"p1\"
number = 1
device = \"kernel:eth1\"

[[bridge.port]]
name = \"p2\"
number = 2
device = \"0000:01:00.0\"
```

## The configuration at start

`millraced` keeps every configuration that ran, as numbered revisions, in a store (`system.state_dir`). `millrace apply`,
`rollback` and REST write to the store and never to the file.

* A file that is new, or differs from the last imported version, is imported: it becomes the newest revision. Comments
  and the order of keys do not count. A warning in the log lists what the import removes (an empty file is a valid file);
  `millrace rollback` restores it.
* An unchanged file is not imported again: **the newest revision of the store wins**, so that changes survive a
  restart. Without `--config`, the start uses the newest revision as well.
* `millrace show config > FILE` writes the configuration of the switch to the file.
* A file is imported only after the workers run and the REST API has its address. A file for which the start fails
  changes nothing.
* A start confirms nothing. A file with the content of a change that awaits confirmation (`--confirm-within`) leaves it
  pending, and a file whose content was rolled back last is not imported: the log says so, and `millrace apply FILE` applies
  it again.

`state_dir` says where this store is. To move it, stop `millraced`, move the directory, and change the file: a changed
`state_dir` alone starts with a new store, without revisions and with another `api-token`. A change of the running switch to
another directory is refused.

Changes of `[system]` and `[api]` take effect at the next start. To prevent a failure of that start, they are tested on this
machine when they are applied, and by `--check` and `--dry-run`: cores, memory, the files and the token of the REST API,
its socket and its address (`--check` allows these two to be in use). `--check` also tests `state_dir`, files of `pcap:`,
`wasm:` and `library:`, scenarios of emulated paths, TLS files of bridges (a key of another certificate and an expired
certificate, too), the directories, owners and groups of sockets, interfaces and network namespaces of the kernel, NICs, addresses of listeners and of
sFlow, and the user ids of functions. A running switch reports errors of these as problems, and `millrace apply` exits with status 4 for them. Huge pages
are not tested.

If the newest revision still fails to start, `millraced --revision N` with the other options unchanged starts with
revision N, which becomes the newest, and cancels a pending confirmation. The file is not imported then. The message of the
failed start lists the newest revisions and recommends one. Use `--revision` once and not in a service file: every start
with it returns to revision N.

## Options of millraced
| option | meaning |
| --- | --- |
| `--config FILE` | the configuration; without it, the newest revision of the store |
| `--check` | checks the file and the resources that it names on this machine, in its network namespace, prints a summary, and exits |
| `--revision N` | starts with an earlier revision of the store, which becomes the newest |
| `--state-dir DIR` | the directory of the store, which overrides `system.state_dir`; it must be writable |
| `--no-dpdk` | runs without DPDK: all devices except NICs, DPDK devargs and `virtio-user` |
| `--log FILTER` | off, error, warn, info, debug or trace, and `,TARGET=LEVEL` for targets with another level; `millrace log` shows the targets and changes the filter at run time |
| `--log-json` | logs JSON, one object a line |
| `--log-to PLACE` | `auto`: the journal if standard error is connected to it, as in a service, and standard error otherwise; `stderr`; `journal`; `journal:SOCKET` ([monitoring.md](monitoring.md#logs)) |

`make install` installs a systemd unit (`millraced.service`), which starts `millraced --config
/etc/millrace/millraced.toml` with only the privileges that it needs. It restarts a crashed daemon after two
seconds, any number of times, so that a change to be confirmed is also rolled back if it crashes the daemon at once.
";

/// Returns the reference as Markdown.
pub fn reference() -> String {
    let mut out = HEAD.to_owned();
    for key in Config::section().keys {
        table(&key, "", 2, &mut out);
    }
    out
}

/// Writes the chapter of a key that is a table: a heading, its keys, then its subtables.
fn table(key: &Key, outer: &str, level: usize, out: &mut String) {
    let (section, many) = match &key.shape {
        Shape::Table(section) => (section(), false),
        Shape::List(item) => match item.as_ref() {
            Shape::Table(section) => (section(), true),
            _ => return,
        },
        _ => return,
    };
    let path = if outer.is_empty() {
        key.name.to_owned()
    } else {
        format!("{outer}.{}", key.name)
    };
    let heading = match (many, section.shorthand) {
        (true, Some(_)) => format!("An item of `{path}`"),
        (true, None) => format!("`[[{path}]]`"),
        (false, _) => format!("`[{path}]`"),
    };
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "\n{} {heading}\n\n{}\n\n",
        "#".repeat(level),
        prose(section.doc)
    );
    if section.applies == TakesEffect::Restart {
        out.push_str("Changes of this table take effect at the next start of the daemon.\n\n");
    }
    keys(&section, out);
    for inner in &section.keys {
        table(inner, &path, level + 1, out);
    }
}

fn keys(section: &Section, out: &mut String) {
    out.push_str("| key | takes | default | meaning |\n| --- | --- | --- | --- |\n");
    for key in &section.keys {
        let default = match (&key.default, key.required) {
            (_, true) => "required".to_owned(),
            // The defaults of a table are listed with its own keys.
            (Some(_), _) if matches!(key.shape, Shape::Table(_)) => String::new(),
            (Some(value), _) => format!("`{}`", inline_json(value)),
            (None, _) => "unset".to_owned(),
        };
        let meaning = match &key.shape {
            Shape::Choice(choices) => {
                let words: Vec<String> = choices
                    .iter()
                    .map(|choice| format!("`{}`: {}", choice.word, choice.doc.trim()))
                    .collect();
                format!("{} {}", prose(key.doc), words.join(" "))
            }
            _ => prose(key.doc),
        };
        let _ = writeln!(
            out,
            "| `{}` | {} | {default} | {} |",
            key.name,
            takes(&key.shape),
            cell(&meaning)
        );
    }
}

fn takes(shape: &Shape) -> String {
    match shape {
        Shape::Bool => "`true` or `false`".to_owned(),
        Shape::Integer { min, max, unit } => format!("{min} to {max}{unit}"),
        Shape::Text { form, example } => cell(&format!("{form}: `\"{example}\"`")),
        Shape::Choice(choices) => {
            let words: Vec<String> = choices
                .iter()
                .map(|choice| format!("`\"{}\"`", choice.word))
                .collect();
            words.join(", ")
        }
        Shape::List(item) => match item.as_ref() {
            Shape::Table(section) if section().shorthand.is_some() => {
                "a list of texts or tables, below".to_owned()
            }
            Shape::Table(_) => "tables, below".to_owned(),
            leaf => format!("a list of {}", takes(leaf)),
        },
        Shape::Table(_) => "a table, below".to_owned(),
    }
}

fn prose(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Returns the text as a table cell; a bar, which would end the cell, is escaped.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
