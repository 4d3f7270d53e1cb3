//! Files of other switches: databases and scripts of Open vSwitch, Lagopus' DSL, and outputs of iproute2.

use millrace_import::{ImportError, Imported, lagopus, linux, ovs};
use millrace_model::Config;
use sha1::{Digest as _, Sha1};

/// The longest input; longer files cost more time and find nothing else.
const INPUT_MAX: usize = 1 << 16;

/// Properties: any file is refused with one line, or becomes a configuration that its own text gives again, and each finding is one
/// line of the comments.
fn check(read: Result<Imported, ImportError>) {
    let imported = match read {
        Ok(imported) => imported,
        Err(error) => return assert!(!error.reason.contains('\n'), "{error}"),
    };
    let text = imported.to_toml("a file");
    match Config::from_toml("fuzz.toml", &text) {
        Ok(again) => assert_eq!(again, imported.config, "{text}"),
        Err(errors) => panic!("{errors}\n{text}"),
    }
    let comments = text.lines().take_while(|line| line.starts_with('#')).count();
    assert_eq!(comments, 1 + imported.findings.len(), "{text}");
}

/// A database or a script, by its first bytes. Lines that begin with a brace are the records of a database: they get the sums that
/// no fuzzer finds.
pub(crate) fn of_ovs(bytes: &[u8]) {
    if bytes.len() > INPUT_MAX {
        return;
    }
    if !bytes.starts_with(b"{") {
        return check(ovs::read("file", bytes));
    }
    let mut database = Vec::new();
    for record in bytes.split_inclusive(|byte| *byte == b'\n') {
        let sum: String = Sha1::digest(record)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        database.extend_from_slice(format!("OVSDB JSON {} {sum}\n", record.len()).as_bytes());
        database.extend_from_slice(record);
    }
    check(ovs::read("file", &database));
}

/// A file in DSL syntax.
pub(crate) fn of_lagopus(bytes: &[u8]) {
    if bytes.len() <= INPUT_MAX {
        check(lagopus::read("file", bytes));
    }
}

/// Up to four outputs, with a zero byte between two of them.
pub(crate) fn of_linux(bytes: &[u8]) {
    if bytes.len() > INPUT_MAX {
        return;
    }
    let texts: Vec<(&str, &[u8])> = ["links", "vlans", "addresses", "fdb"]
        .into_iter()
        .zip(bytes.splitn(4, |byte| *byte == 0))
        .collect();
    check(linux::read(&texts));
}
