//! Tests of each error in an ID token, and of a token that OpenSSL has signed.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::json;

use super::*;

const NOW: u64 = 1_000_100;

const EXPECTED: Expected<'_> = Expected {
    issuer: "https://auth.example",
    client_id: "millrace",
    nonce: "n-0",
    now: NOW,
};

/// The modulus of a key that `openssl genrsa` made.
const RSA_MODULUS: &str = "nGOhM9_aEiz3kZw_f7GSFubNu4xgJcDNZhq9fvo8fWAtjgoCzkocuhroqEzOGwG3GXGd6pLNYlC5PeEeRRd3wtSOQ7Z1W3h3v4X-VzGKbIhk87xeyQkBIA3oWheoapmENqjAraNoF_kFLj1DVSQmVkfMwZUJ4kesWmBpNwvsdTInJtMEMcSJeJ_uqw2I4DJEjjxFryQQyF0XZEv-UMCnCBBioeVK-WhS6gVKIqlp1H-uggewf8tjUrJ7E6Zs-TaUZ-pItuZMqnraBBarmt3r6-YNiPPp2y-VuQY7DWmRHRJOUehXBhRGDR1oxNmxRVm5byLyu_z7iW_Y0XmHoWBKQQ";
/// A token that `openssl dgst -sha256 -sign` signed.
const RSA_TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6InJzYS0xIn0.eyJpc3MiOiJodHRwczovL2F1dGguZXhhbXBsZSIsInN1YiI6Ijc3IiwiYXVkIjoibWlsbHJhY2UiLCJleHAiOjEwMDA2MDAsImlhdCI6MTAwMDAwMCwibm9uY2UiOiJuLTAifQ.MekeOWKQO1BCSVQEFxbQp4E5AFAdQpFBPH9SoCUDF2JLwDU6jKD5wsSPRjN5IUF01PoMLbylwkUC_l7r3kv5aQb0llKAy84_gCtXt7WTjx9ADNlb9WVI_YNo31f2cOh7gHsoT9LxDOPhR2TiHliDHnU4AlN_GxUNGZ-n5GcdWiAaix5Xd3GKeq-_4uPKINf7lh9By2ZpBgK97GhXt3S4OLcN8tTjfK3-4trr4lPfhp6kGYsXdFjaZoDGbuHYJ5qo1RQvql5bwyxB8ht7dZ0-J__ICyPIspxxR45odn4h5LxhLS_Zc_JzufZdlZHNqwlBnYiMC0serzWPKeliFWbB-w";

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn claims() -> Value {
    json!({ "iss": "https://auth.example", "sub": "77", "aud": "millrace", "iat": 1_000_000, "exp": 1_000_600, "nonce": "n-0" })
}

/// A provider's key on the curve P-256.
struct Signer {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl Signer {
    fn new() -> Signer {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        Signer { pair, random }
    }

    fn key(&self, kid: &str) -> Value {
        let point = self.pair.public_key().as_ref();
        json!({ "kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "x": encode(&point[1..33]), "y": encode(&point[33..]) })
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let signature = self.pair.sign(&self.random, signed.as_bytes()).unwrap();
        format!("{signed}.{}", encode(signature))
    }

    fn token(&self, claims: &Value) -> String {
        self.sign(&json!({ "alg": "ES256", "kid": "k" }), claims)
    }
}

fn keys(keys: &[Value]) -> KeySet {
    KeySet::parse(&json!({ "keys": keys })).unwrap()
}

#[test]
fn tokens_of_all_three_algorithms_are_accepted() {
    let rsa = json!({ "kty": "RSA", "kid": "rsa-1", "alg": "RS256", "n": RSA_MODULUS, "e": "AQAB" });
    let signer = Signer::new();
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let edwards = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
    let okp = json!({ "kty": "OKP", "crv": "Ed25519", "x": encode(edwards.public_key()) });
    let signed = format!(
        "{}.{}",
        encode(json!({ "alg": "EdDSA" }).to_string()),
        encode(claims().to_string())
    );
    let edwards_token = format!("{signed}.{}", encode(edwards.sign(signed.as_bytes())));
    // A key of an unknown type has no effect on other keys.
    let all = keys(&[
        json!({ "kty": "oct", "k": "AA" }),
        json!(7),
        rsa,
        signer.key("k"),
        okp,
    ]);
    for token in [RSA_TOKEN, &signer.token(&claims()), &edwards_token] {
        assert_eq!(verify(token, &all, &EXPECTED).unwrap().subject, "77", "{token}");
    }
}

#[test]
fn a_changed_token_and_one_of_another_key_have_a_wrong_signature() {
    let (signer, other) = (Signer::new(), Signer::new());
    let own = keys(&[signer.key("k")]);
    let token = signer.token(&claims());
    let parts: Vec<&str> = token.split('.').collect();
    let mut more = claims();
    more["sub"] = json!("78");
    let changed = format!("{}.{}.{}", parts[0], encode(more.to_string()), parts[2]);
    for wrong in [
        changed,
        other.token(&claims()),
        format!("{}.{}.AAAA", parts[0], parts[1]),
    ] {
        let error = verify(&wrong, &own, &EXPECTED).unwrap_err();
        assert_eq!(error, IdTokenError::Signature, "{wrong}");
    }
    let rsa = keys(&[json!({ "kty": "RSA", "kid": "rsa-1", "n": RSA_MODULUS, "e": "AQAB" })]);
    let cut = RSA_TOKEN.rsplit_once('.').unwrap().0;
    let error = verify(&format!("{cut}.AAAA"), &rsa, &EXPECTED).unwrap_err();
    assert_eq!(error, IdTokenError::Signature);
}

#[test]
fn a_token_cannot_choose_its_check() {
    let signer = Signer::new();
    let own = keys(&[signer.key("k")]);
    for algorithm in ["none", "HS256", "RS512", "es256", ""] {
        let token = signer.sign(&json!({ "alg": algorithm, "kid": "k" }), &claims());
        let error = verify(&token, &own, &EXPECTED).unwrap_err();
        assert_eq!(error, IdTokenError::Algorithm(algorithm.to_owned()));
    }
    // A key of another type, use or algorithm cannot verify the signature.
    let mut encryption = signer.key("k");
    encryption["use"] = json!("enc");
    let mut other_algorithm = signer.key("k");
    other_algorithm["alg"] = json!("ES384");
    let mut other_curve = signer.key("k");
    other_curve["crv"] = json!("P-384");
    let rsa = json!({ "kty": "RSA", "kid": "k", "n": RSA_MODULUS, "e": "AQAB" });
    for key in [
        encryption,
        other_algorithm,
        other_curve,
        rsa,
        signer.key("another"),
    ] {
        let error = verify(
            &signer.token(&claims()),
            &keys(std::slice::from_ref(&key)),
            &EXPECTED,
        )
        .unwrap_err();
        assert_eq!(error, IdTokenError::UnknownKey, "{key}");
    }
}

#[test]
fn each_wrong_claim_is_refused_by_its_name() {
    use IdTokenError as E;

    let signer = Signer::new();
    let own = keys(&[signer.key("k")]);
    for (name, value, error) in [
        ("iss", json!("https://auth.example/"), E::Issuer),
        ("iss", json!("https://evil.example"), E::Issuer),
        ("iss", Value::Null, E::Issuer),
        ("aud", json!("another"), E::Audience),
        ("aud", json!([]), E::Audience),
        ("aud", json!(["millrace", "another"]), E::Audience),
        ("aud", Value::Null, E::Audience),
        ("azp", json!("another"), E::Audience),
        ("exp", json!(NOW - 60), E::Expired),
        ("exp", json!("soon"), E::Malformed),
        ("iat", json!(NOW + 61), E::IssuedAt),
        ("iat", json!(NOW - 660), E::IssuedAt),
        ("iat", Value::Null, E::Malformed),
        ("nonce", json!("n-1"), E::Nonce),
        ("nonce", Value::Null, E::Nonce),
        ("sub", json!(""), E::Malformed),
        ("sub", json!(77), E::Malformed),
    ] {
        let mut wrong = claims();
        wrong[name] = value.clone();
        let found = verify(&signer.token(&wrong), &own, &EXPECTED).unwrap_err();
        assert_eq!(found, error, "{name} = {value}");
    }
    for (name, value) in [
        ("aud", json!(["millrace"])),
        ("exp", json!(NOW - 59)),
        ("iat", json!(NOW + 60)),
    ] {
        let mut right = claims();
        right[name] = value.clone();
        assert!(
            verify(&signer.token(&right), &own, &EXPECTED).is_ok(),
            "{name} = {value}"
        );
    }
    let mut several = claims();
    several["aud"] = json!(["millrace", "another"]);
    several["azp"] = json!("millrace");
    assert!(verify(&signer.token(&several), &own, &EXPECTED).is_ok());
}

#[test]
fn texts_that_are_no_token_are_malformed() {
    let signer = Signer::new();
    let own = keys(&[signer.key("k")]);
    let critical = signer.sign(&json!({ "alg": "ES256", "kid": "k", "crit": ["b64"] }), &claims());
    let list = signer.token(&json!([1, 2]));
    for text in ["", ".", "..", "a.b.c", &critical, &list] {
        assert_eq!(
            verify(text, &own, &EXPECTED).unwrap_err(),
            IdTokenError::Malformed,
            "{text}"
        );
    }
    assert!(KeySet::parse(&json!({ "keys": 7 })).is_none());
    assert!(KeySet::parse(&json!([])).is_none());
}
