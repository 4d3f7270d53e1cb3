//! The man page of the configuration file, from the schema of the model, as docs/configuration.md.

use std::io::Write;

use anyhow::{Context, Result};
use clap_mangen::roff::{Inline, Roff, bold, roman};
use millrace_model::Config;
use millrace_model::schema::{Key, Section, Shape, TakesEffect};

/// Writes `millraced.toml(5)` to standard output.
pub(crate) fn print() -> Result<()> {
    std::io::stdout()
        .write_all(page().as_bytes())
        .context("standard output cannot be written")
}

fn page() -> String {
    let mut roff = Roff::new();
    roff.control("TH", ["millraced.toml", "5"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("millraced.toml - the configuration file of millraced")]);
    roff.control("SH", ["DESCRIPTION"]);
    let paragraphs = [
        "millraced --config FILE reads TOML. Unknown keys and invalid values are rejected, all errors at once, each with file, \
         line and column. An absent key has its default. `millraced --check --config FILE` checks a file on this machine, \
         `millrace apply FILE` applies it to the running switch, and `millrace show config` prints the configuration that \
         runs.",
        "The file is imported at a start if it is new, or differs from its last imported version; otherwise the newest \
         revision of the store wins, so that later changes survive a restart.",
    ];
    for paragraph in paragraphs {
        roff.text(prose(paragraph));
        roff.control("PP", []);
    }
    for key in Config::section().keys {
        table(&key, "", &mut roff);
    }
    roff.control("SH", ["EXAMPLE"]);
    roff.control("nf", []);
    let example = "[[bridge]]\nname = \"br0\"\ncontrollers = [\"tcp:127.0.0.1:6653\"]\n\n[[bridge.port]]\nname = \"p1\"\n\
                   number = 1\ndevice = \"kernel:eth1\"";
    for line in example.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff.control("SH", ["FILES"]);
    roff.text([
        bold("/etc/millrace/millraced.toml"),
        roman(" is the file of the service that `make install` installs."),
    ]);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([
        bold("millraced"),
        roman("(8), "),
        bold("millrace"),
        roman("(1), "),
        bold("millrace-apply"),
        roman("(1)"),
    ]);
    roff.render()
}

/// Writes the section of a key that is a table, and those of its tables.
fn table(key: &Key, outer: &str, roff: &mut Roff) {
    let (section, is_list) = match &key.shape {
        Shape::Table(section) => (section(), false),
        Shape::List(item) => match item.as_ref() {
            Shape::Table(section) => (section(), true),
            _ => return,
        },
        _ => return,
    };
    let path = match outer {
        "" => key.name.to_owned(),
        outer => format!("{outer}.{}", key.name),
    };
    let heading = match (is_list, section.shorthand) {
        (true, Some(_)) => format!("AN ITEM OF {path}"),
        (true, None) => format!("[[{path}]]"),
        (false, _) => format!("[{path}]"),
    };
    roff.control("SH", [heading.as_str()]);
    roff.text(prose(&joined(section.doc)));
    if section.applies == TakesEffect::Restart {
        roff.control("PP", []);
        roff.text([roman(
            "Changes of this table take effect at the next start of the daemon.",
        )]);
    }
    keys(&section, roff);
    for inner in &section.keys {
        table(inner, &path, roff);
    }
}

fn keys(section: &Section, roff: &mut Roff) {
    for key in &section.keys {
        let default = match (&key.default, key.required) {
            (_, true) => "; required".to_owned(),
            (Some(_), _) if matches!(key.shape, Shape::Table(_)) => String::new(),
            (Some(value), _) => format!("; {value} unless given"),
            (None, _) => String::new(),
        };
        roff.control("TP", []);
        roff.text([
            bold(key.name),
            roman(format!(" = {}{default}", takes(&key.shape))),
        ]);
        roff.text(prose(&joined(key.doc)));
        if let Shape::Choice(choices) = &key.shape {
            for choice in *choices {
                roff.control("br", []);
                roff.text([bold(choice.word), roman(format!(": {}", choice.doc.trim()))]);
            }
        }
    }
}

fn takes(shape: &Shape) -> String {
    match shape {
        Shape::List(item) => match item.as_ref() {
            Shape::Table(section) if section().shorthand.is_some() => {
                "a list of texts or tables, below".to_owned()
            }
            Shape::Table(_) => "tables, below".to_owned(),
            leaf => format!("a list, each item {}", leaf.expected()),
        },
        Shape::Table(_) => "a table, below".to_owned(),
        leaf => leaf.expected(),
    }
}

fn joined(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Returns text with `` `code` `` in bold.
fn prose(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate();
    parts
        .filter(|(_, part)| !part.is_empty())
        .map(|(at, part)| if at % 2 == 1 { bold(part) } else { roman(part) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_table_and_every_key() {
        fn check(section: &Section, page: &str) {
            for key in &section.keys {
                // A dash of a name would be escaped.
                assert!(page.contains(&format!("\\fB{}\\fR = ", key.name)), "{}", key.name);
                let mut shape = &key.shape;
                while let Shape::List(item) = shape {
                    shape = item;
                }
                if let Shape::Table(inner) = shape {
                    check(&inner(), page);
                }
            }
        }
        let page = page();
        for key in Config::section().keys {
            let mut shape = &key.shape;
            while let Shape::List(item) = shape {
                shape = item;
            }
            assert!(page.contains(&format!("[{}]", key.name)), "{}", key.name);
            if let Shape::Table(inner) = shape {
                check(&inner(), &page);
            }
        }
        for part in [
            ".TH",
            "[[bridge.port]]",
            "kernel:eth1",
            "keep_flows",
            "next start of the daemon",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }
}
