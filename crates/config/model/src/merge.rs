//! JSON merge patch (RFC 7396), the body of a REST PATCH.

use serde_json::Value as Json;

use crate::config::Config;
use crate::error::ConfigErrors;

/// Applies `patch` to `target` as RFC 7396, section 2 specifies: objects are merged key by key, null removes a key,
/// and any other value (a list, too) replaces the old one.
pub fn merge_patch(target: &mut Json, patch: &Json) {
    let Json::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Json::Object(serde_json::Map::new());
    }
    if let Json::Object(target) = target {
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                merge_patch(target.entry(key.clone()).or_insert(Json::Null), value);
            }
        }
    }
}

impl Config {
    /// Returns the configuration with a merge patch applied; a removed key has its default again.
    ///
    /// # Errors
    /// [`ConfigErrors`] if the result is not a valid configuration; pointers refer to the result.
    pub fn merge_patched(&self, patch: &Json) -> Result<Config, ConfigErrors> {
        let mut json = self.to_json();
        merge_patch(&mut json, patch);
        Config::from_json(&json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_examples_of_rfc_7396_appendix_a_hold() {
        for (original, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ] {
            let mut target = original.clone();
            merge_patch(&mut target, &patch);
            assert_eq!(target, result, "{original} + {patch}");
        }
    }

    #[test]
    fn a_patch_that_makes_an_illegal_configuration_is_refused() {
        let config = Config::default();
        let patched = config
            .merge_patched(&json!({"system": {"memory_mib": 1024}}))
            .unwrap();
        assert_eq!(patched.system.memory_mib.get(), 1024);
        assert_eq!(
            patched.merge_patched(&json!({"system": {"memory_mib": null}})),
            Ok(config)
        );
        let error = patched
            .merge_patched(&json!({"system": {"memory": 1}}))
            .unwrap_err();
        assert!(
            error.to_string().starts_with("/system/memory: unknown key"),
            "{error}"
        );
    }
}
