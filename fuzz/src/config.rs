//! Configurations: a file, or the body of a REST request.

use millrace_model::{Config, diff};

/// Reads the bytes as a TOML file and as JSON.
///
/// Promises: every fault of a file has a place and is one line; what is accepted is legal, and is read back
/// the same from every form in which it is written.
pub(crate) fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Config::from_toml("fuzz", text) {
        Ok(config) => check(&config),
        Err(errors) => {
            assert!(errors.iter().len() > 0);
            for error in errors.iter() {
                assert!(
                    error.location.is_some() && !error.to_string().contains('\n'),
                    "{error}"
                );
            }
        }
    }
    if let Ok(json) = serde_json::from_str(text) {
        match Config::from_json(&json) {
            Ok(config) => check(&config),
            Err(errors) => assert!(!errors.to_string().is_empty()),
        }
    }
}

fn check(config: &Config) {
    assert_eq!(config.validate(), Ok(()));
    for text in [config.to_toml(), config.to_toml_full()] {
        let again = Config::from_toml("again", &text).expect("what was written can be read");
        assert_eq!(*config, again);
    }
    assert!(diff(config, config).is_empty());
}
