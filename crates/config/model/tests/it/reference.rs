//! docs/configuration.md equals the output of the generator.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use millrace_model::{Config, reference};

#[test]
fn the_reference_in_docs_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/configuration.md");
    if std::env::var_os("MILLRACE_BLESS").is_some() {
        std::fs::write(path, reference()).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == reference(),
        "docs/configuration.md differs from the generated text: MILLRACE_BLESS=1 cargo test -p millrace-model --test it reference::"
    );
}

#[test]
fn the_example_in_the_reference_is_a_valid_file() {
    let text = reference();
    let example = text
        .split("```toml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let config = Config::from_toml("configuration.md", example).unwrap();
    assert_eq!(config.to_toml(), example);
}

#[test]
fn every_key_is_documented_and_ends_its_sentence() {
    fn check(section: &millrace_model::schema::Section) {
        use millrace_model::schema::Shape;
        for key in &section.keys {
            assert!(
                key.doc.last().is_some_and(|line| line.ends_with('.')),
                "{}.{}",
                section.name,
                key.name
            );
            let mut shape = &key.shape;
            while let Shape::List(item) = shape {
                shape = item;
            }
            if let Shape::Table(inner) = shape {
                check(&inner());
            }
        }
    }
    check(&Config::section());
}
