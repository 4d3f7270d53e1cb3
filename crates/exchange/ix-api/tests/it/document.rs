//! The OpenAPI document. The types of the web page are generated from it.

use std::path::Path;

use crate::support::Api;

#[test]
fn the_page_has_the_document_of_this_api() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../portal/openapi.json");
    let document = millrace_ix_api::openapi_json();
    if std::env::var_os("MILLRACE_BLESS").is_some() {
        std::fs::write(&path, &document).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == document,
        "portal/openapi.json is not the document of this API: run this test with MILLRACE_BLESS=1, then `npm run types` in \
         portal/"
    );
}

#[tokio::test]
async fn the_api_serves_its_document_and_every_problem_has_a_meaning() {
    let api = Api::new().await;
    let document = api.get("", "/api/v1/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    for kind in millrace_ix_api::ProblemKind::ALL {
        let answer = api.get("", &format!("/api/v1/problems/{}", kind.name())).await;
        assert_eq!(answer.status, 200, "{}", kind.name());
        assert!(answer.text().contains(&kind.status().to_string()));
    }
}

#[test]
fn the_page_has_the_names_of_protocols() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../portal/src/i18n/protocols.json");
    let named = |number: u8| Some((number.to_string(), millrace_ix_model::IpProtocol(number).name()?));
    let names: serde_json::Map<_, _> = (0..=255)
        .filter_map(named)
        .map(|(number, name)| (number, name.into()))
        .collect();
    let mut text = serde_json::to_string_pretty(&names).unwrap();
    text.push('\n');
    if std::env::var_os("MILLRACE_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == text,
        "portal/src/i18n/protocols.json differs from ix-model: run this test with MILLRACE_BLESS=1"
    );
}

#[test]
fn the_page_has_the_reasons_of_this_engine() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../portal/reasons.json");
    let mut reasons = serde_json::to_string_pretty(&millrace_ix_model::reason::all()).unwrap();
    reasons.push('\n');
    if std::env::var_os("MILLRACE_BLESS").is_some() {
        std::fs::write(&path, &reasons).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == reasons,
        "portal/reasons.json has not the reasons of this engine: run this test with MILLRACE_BLESS=1, then add the words to \
         portal/src/i18n/reasons.ja.json and reasons.ko.json"
    );
}
