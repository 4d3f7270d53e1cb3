//! AES-128-GCM and ChaCha20-Poly1305 by `ring`, with subkeys by HKDF-Expand (RFC 5869, SHA-256).

use super::{COUNTER_MAX, SUBKEY_BITS, Seal, SealError};
use ring::aead::{self, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};

/// The AEAD of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// AES-128-GCM, for processors with AES instructions.
    Aes128Gcm,
    /// ChaCha20-Poly1305 (RFC 8439), for processors without AES instructions.
    ChaCha20Poly1305,
}

impl Algorithm {
    fn of_ring(self) -> &'static aead::Algorithm {
        match self {
            Algorithm::Aes128Gcm => &aead::AES_128_GCM,
            Algorithm::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }
}

/// Bytes of a content secret.
const SECRET_SIZE: usize = 32;
/// The number of stored subkeys: the current one, and those of late packets and of repairs from the slab
/// cache.
const SUBKEYS: usize = 4;

/// The content key of one session.
pub struct ContentKey {
    algorithm: Algorithm,
    secret: Prk,
    subkeys: [Option<Subkey>; SUBKEYS],
}

struct Subkey {
    index: u64,
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
}

/// The length of a key that is expanded from the secret, in bytes.
#[derive(Clone, Copy)]
struct Size(usize);

impl KeyType for Size {
    fn len(&self) -> usize {
        self.0
    }
}

impl ContentKey {
    /// Returns the content key of a secret of at least 32 bytes.
    ///
    /// # Errors
    /// If the secret is shorter.
    pub fn new(algorithm: Algorithm, secret: &[u8]) -> Result<ContentKey, SealError> {
        if secret.len() < SECRET_SIZE {
            return Err(SealError::ShortSecret { size: secret.len() });
        }
        Ok(ContentKey {
            algorithm,
            secret: Prk::new_less_safe(HKDF_SHA256, secret),
            subkeys: [const { None }; SUBKEYS],
        })
    }

    /// Returns the subkey of a counter. Derives it if it is not among the stored ones.
    fn subkey(&mut self, counter: u64) -> Result<&Subkey, SealError> {
        let exhausted = SealError::Exhausted { counter };
        if counter > COUNTER_MAX {
            return Err(exhausted);
        }
        let index = counter >> SUBKEY_BITS;
        #[allow(clippy::cast_possible_truncation, reason = "a remainder of 4")]
        let slot = &mut self.subkeys[(index % SUBKEYS as u64) as usize];
        if slot.as_ref().is_none_or(|subkey| subkey.index != index) {
            let algorithm = self.algorithm.of_ring();
            let mut key = [0; SECRET_SIZE];
            let key = &mut key[..algorithm.key_len()];
            let mut iv = [0; NONCE_LEN];
            expand(&self.secret, b"millrace subkey", index, key).ok_or(exhausted)?;
            expand(&self.secret, b"millrace iv", index, &mut iv).ok_or(exhausted)?;
            let key = UnboundKey::new(algorithm, key).map_err(|_| exhausted)?;
            *slot = Some(Subkey {
                index,
                key: LessSafeKey::new(key),
                iv,
            });
        }
        slot.as_ref().ok_or(exhausted)
    }
}

/// Fills `out` with HKDF-Expand(secret, label ‖ index as 8 bytes).
fn expand(secret: &Prk, label: &[u8], index: u64, out: &mut [u8]) -> Option<()> {
    let info = [label, &index.to_be_bytes()];
    let expanded = secret.expand(&info, Size(out.len())).ok()?;
    expanded.fill(out).ok()
}

impl Subkey {
    fn nonce(&self, counter: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, counter) in nonce[NONCE_LEN - 8..].iter_mut().zip(counter.to_be_bytes()) {
            *byte ^= counter;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Returns the associated data: the counter as it is on the wire.
fn associated(counter: u64) -> Aad<[u8; 5]> {
    let [_, _, _, a, b, c, d, e] = counter.to_be_bytes();
    Aad::from([a, b, c, d, e])
}

impl Seal for ContentKey {
    fn seal(&mut self, counter: u64, bytes: &mut [u8]) -> Result<[u8; 16], SealError> {
        let subkey = self.subkey(counter)?;
        let nonce = subkey.nonce(counter);
        let tag = subkey
            .key
            .seal_in_place_separate_tag(nonce, associated(counter), bytes)
            .map_err(|_| SealError::Exhausted { counter })?;
        let mut bytes = [0; 16];
        bytes.copy_from_slice(tag.as_ref());
        Ok(bytes)
    }

    fn open<'a>(&mut self, counter: u64, bytes: &'a mut [u8]) -> Result<&'a mut [u8], SealError> {
        let subkey = self.subkey(counter)?;
        let nonce = subkey.nonce(counter);
        subkey
            .key
            .open_in_place(nonce, associated(counter), bytes)
            .map_err(|_| SealError::Forged { counter })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len() / 2)
            .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
            .collect()
    }

    fn seal_once(algorithm: Algorithm, key: &str, nonce: &str, aad: &str, bytes: &mut [u8]) -> Vec<u8> {
        let key = LessSafeKey::new(UnboundKey::new(algorithm.of_ring(), &hex(key)).unwrap());
        let nonce = Nonce::try_assume_unique_for_key(&hex(nonce)).unwrap();
        let aad = Aad::from(hex(aad));
        key.seal_in_place_separate_tag(nonce, aad, bytes)
            .unwrap()
            .as_ref()
            .to_vec()
    }

    /// RFC 9001, appendix A.4: the tag of a Retry packet.
    #[test]
    fn aes_128_gcm_is_that_of_rfc_9001() {
        let tag = seal_once(
            Algorithm::Aes128Gcm,
            "be0c690b9f66575a1d766b54e368c84e",
            "461599d35d632bf2239825bb",
            "088394c8f03e515708ff000000010008f067a5502a4262b5746f6b656e",
            &mut [],
        );
        assert_eq!(tag, hex("04a265ba2eff4d829058fb3f0f2496ba"));
    }

    /// RFC 8439, section 2.8.2.
    #[test]
    fn chacha20_poly1305_is_that_of_rfc_8439() {
        let mut text =
            b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the \
            future, sunscreen would be it."
                .to_vec();
        let tag = seal_once(
            Algorithm::ChaCha20Poly1305,
            "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
            "070000004041424344454647",
            "50515253c0c1c2c3c4c5c6c7",
            &mut text,
        );
        assert_eq!(text[..8], hex("d31a8d34648e60db"));
        assert_eq!(tag, hex("1ae10b594f09e26a7e902ecbd0600691"));
    }

    /// RFC 5869, appendix A.1: the expansion. The secret is the PRK of that case.
    #[test]
    fn subkeys_expand_as_in_rfc_5869() {
        let prk = hex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
        let mut out = [0; 42];
        Prk::new_less_safe(HKDF_SHA256, &prk)
            .expand(&[&hex("f0f1f2f3f4f5f6f7f8f9")], Size(42))
            .unwrap()
            .fill(&mut out)
            .unwrap();
        assert_eq!(
            out[..],
            hex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865")
        );
    }

    #[test]
    fn a_packet_opens_under_its_own_counter_only_and_each_2_to_the_20_have_a_subkey() {
        for algorithm in [Algorithm::Aes128Gcm, Algorithm::ChaCha20Poly1305] {
            let mut key = ContentKey::new(algorithm, &[9; 32]).unwrap();
            for counter in [0, 1, (1 << 20) - 1, 1 << 20, (7 << 20) + 3, COUNTER_MAX] {
                let mut bytes = b"address and payload".to_vec();
                let tag = key.seal(counter, &mut bytes).unwrap();
                bytes.extend_from_slice(&tag);
                let mut other = bytes.clone();
                assert_eq!(
                    key.open(counter ^ 1, &mut other),
                    Err(SealError::Forged { counter: counter ^ 1 })
                );
                assert_eq!(key.open(counter, &mut bytes).unwrap(), b"address and payload");
            }
            let counter = COUNTER_MAX + 1;
            assert_eq!(
                key.seal(counter, &mut [0; 9]),
                Err(SealError::Exhausted { counter })
            );
        }
        assert!(ContentKey::new(Algorithm::Aes128Gcm, &[9; 31]).is_err());
    }

    /// Golden vector of the shared part, for other implementations; docs/transport-protocol.md has it, too.
    #[test]
    fn the_golden_vector_of_the_protocol_page_holds() {
        let secret: Vec<u8> = (0..32).collect();
        let mut key = ContentKey::new(Algorithm::Aes128Gcm, &secret).unwrap();
        let mut bytes = hex("00000000300005");
        bytes.extend_from_slice(b"millrace");
        let tag = key.seal(0x10_0001, &mut bytes).unwrap();
        bytes.extend_from_slice(&tag);
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, include_str!("../../tests/golden/shared_part.hex").trim());
    }
}
