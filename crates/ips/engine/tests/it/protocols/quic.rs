//! Datagrams of QUIC 1, protected by the keys of RFC 9001 with another implementation (`cryptography` for Python).

fn bytes(digits: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(digit).collect()
}

/// Returns a client hello for quic.example with ALPN h3.
pub(super) fn client_hello() -> Vec<u8> {
    let digits = [
        "c20000000108050505050505050500004066aac42e9d2d64db94234f311adf711f545fdd50e9269ab84a07b821085a9e",
        "3442a163713be2bd4ffdcf3365bb5bfac942808f30abe97aaffab0f79bfbf2588b9017ed9f59da13c746ee5c460e1408",
        "77201ccab80ae1e1a8a866b771b852dbd1b12b36058f3da0",
    ];
    bytes(&digits.concat())
}

/// Returns the server hello that answers it, of TLS 1.3.
pub(super) fn server_hello() -> Vec<u8> {
    let digits = [
        "cf00000001000000404740596a84cb04612abdb6dc3386a6cb28a5976f7af684ad8f69f685e5fe6d7ba2f8e82ec25f78",
        "9e9e35a2a6d42a055da01552ca32e9231e171afde7013f100e78c92e41edd21217",
    ];
    bytes(&digits.concat())
}

/// Returns an Initial packet with a frame that such packets do not have.
pub(super) fn stream_frame() -> Vec<u8> {
    let digits = [
        "ce000000010805050505050505050000402698ca2edd7c65db946e4c321dd876185358da57ee219d1fcfb59e0face9a8",
        "434a04f52f7d00e8",
    ];
    bytes(&digits.concat())
}

/// Returns an Initial packet with 66 pieces of a hello behind holes.
pub(super) fn pieces() -> Vec<u8> {
    let digits = [
        "c4000000010805050505050505050000415bbfc46ed77d1dddd4624d4a1b9878192b5e9a47ef599bff5f01c7204f4998",
        "4b43e6727744e3fa50fbb03222a15a80dc039d8e488fa964ae93b6b8bbfa862fbedb75bbfc619f7fcf2ccb7a57761748",
        "5c230cfff819e09907df5815e745f7729b6bf79f3d8d47e16df001561cbee176f45e1d5882eeab5af03089d1684031ae",
        "a7f57520dfc5dff99e6096aabce20b2dfb7080aa7ec6e8c5047968a69453b70b36fec23007d0900ff06289bbf167f9dc",
        "be0a0ae8888282adb82dfedfcd58b4ebf3787b08b559502ef3b6c38f1b0b00a247c034a1dd8e8c156916fc9cc9218567",
        "d6d2f78f985b3cd5541e5c3299a84f37e81b6eacdcb345b46e92571d7ac383217f3ec0ac47467985375608f87f62f2b6",
        "7c218fd526c578cf5737ca12726ecc51754111748db367945f6d6c0a73837f3589f56b7ec6d301afcf771df93bed9463",
        "662c5f6f800fdf1e92f8c629647963a01fb662f4e823d7ce2b825cc3f3",
    ];
    bytes(&digits.concat())
}
