//! Configurations: a file, or the body of a REST request.

use millrace_model::{Config, diff};

/// Parses the bytes as a TOML file and as JSON.
///
/// Properties: every error of a file has a location and is one line; an accepted configuration is valid, and equals
/// the result of parsing any of its text forms.
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
