//! The text of the module, which `MILLRACE_BLESS=1` writes.

use std::path::Path;

use millrace_yang::module;

#[test]
fn the_module_in_the_repository_is_the_one_that_the_schema_makes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("millrace.yang");
    let text = module::text();
    if std::env::var_os("MILLRACE_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == text,
        "crates/management/yang/millrace.yang differs from the schema: \
         MILLRACE_BLESS=1 cargo test -p millrace-yang --test it module:: writes it"
    );
}
