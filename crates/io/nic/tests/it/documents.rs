//! The package of the hardware and the page of the documentation are those of the tables.

use std::path::Path;

use millrace_nic::document::{PACKAGE, PAGE, markdown, package};

fn is_written(path: &str, text: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap();
    let written = std::fs::read_to_string(root.join(path)).unwrap_or_default();
    assert!(
        written == text,
        "{path} differs from the tables of millrace-nic: cargo xtask nic-registers"
    );
}

#[test]
fn the_systemverilog_package_has_the_numbers_of_the_tables() {
    is_written(PACKAGE, &package());
}

#[test]
fn the_page_has_the_numbers_of_the_tables() {
    is_written(PAGE, &markdown());
}
