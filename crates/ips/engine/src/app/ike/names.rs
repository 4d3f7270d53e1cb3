//! The names of numbers of IKE in records (IANA, Internet Key Exchange Attributes and Parameters), as Suricata writes them.

/// The name of the payload whose transforms are proposals, or the server's choice.
pub(crate) const SECURITY_ASSOCIATION: &str = "SecurityAssociation";

/// A table of numbers and names.
type Names = &'static [(u64, &'static str)];

/// Returns the name of an exchange.
pub(super) fn exchange(major: u8, exchange: u8) -> Option<&'static str> {
    const VERSION_1: Names = &[
        (0, "None"),
        (1, "Base"),
        (2, "Identity Protection"),
        (3, "Authentication Only"),
        (4, "Aggressive"),
        (5, "Informational"),
        (6, "Transaction (Config Mode)"),
        (32, "Quick Mode"),
        (33, "New Group Mode"),
    ];
    const VERSION_2: Names = &[
        (34, "IKE_SA_INIT"),
        (35, "IKE_AUTH"),
        (36, "CREATE_CHILD_SA"),
        (37, "INFORMATIONAL"),
    ];
    find(
        if major == 1 { VERSION_1 } else { VERSION_2 },
        u64::from(exchange),
    )
}

/// Returns the name of a payload (RFC 2408, section 3.1; RFC 7296, section 3.2).
pub(super) fn payload(major: u8, kind: u8) -> &'static str {
    match (major, kind) {
        (1, 1) | (2, 33) => SECURITY_ASSOCIATION,
        (1, 4) | (2, 34) => "KeyExchange",
        (1, 10) | (2, 40) => "Nonce",
        (1, 13) | (2, 43) => "VendorID",
        (1, 5) => "Identification",
        (1, 8) => "Hash",
        (1, 11) => "Notification",
        (2, 41) => "Notify",
        (1, 9) => "Signature",
        (1, 14) => "AttributeList",
        (1, 20) => "NatDiscovery",
        (1, 21) => "NatOriginalAddress",
        (2, 47) => "Configuration",
        (2, 48) => "ExtensibleAuthentication",
        (1, 12) | (2, 42) => "Delete",
        (2, 35) => "IdentInitiator",
        (2, 36) => "IdentResponder",
        (2, 37) | (1, 6) => "Certificate",
        (2, 38) | (1, 7) => "CertificateRequest",
        (2, 39) => "Authentication",
        (2, 44) => "TrafficSelectorInitiator",
        (2, 45) => "TrafficSelectorResponder",
        (2, 46 | 53) => "EncryptedAndAuthenticated",
        _ => "Other",
    }
}

/// Returns the name of the value of an attribute.
pub(super) fn value(major: u8, attribute: &str, value: u64) -> &'static str {
    let names: Names = match (major, attribute) {
        (1, "alg_enc") => &[
            (1, "EncDesCbc"),
            (2, "EncIdeaCbc"),
            (3, "EncBlowfishCbc"),
            (4, "EncRc5R16B64Cbc"),
            (5, "EncTripleDesCbc"),
            (6, "EncCastCbc"),
            (7, "EncAesCbc"),
            (8, "EncCamelliaCbc"),
        ],
        (1, "alg_hash") => &[
            (1, "HashMd5"),
            (2, "HashSha"),
            (3, "HashTiger"),
            (4, "HashSha2_256"),
            (5, "HashSha2_384"),
            (6, "HashSha2_512"),
        ],
        (1, "alg_auth") => &[
            (1, "AuthPreSharedKey"),
            (2, "AuthDssSignatures"),
            (3, "AuthRsaSignatures"),
            (4, "AuthEncryptionWithRsa"),
            (5, "AuthRevisedEncryptionWithRsa"),
            (64221, "AuthHybridInitRsa"),
            (65001, "AuthXauthInitPreShared"),
            (65005, "AuthXauthInitRsa"),
        ],
        (1, "alg_dh") => &[
            (1, "GroupDefault768BitModp"),
            (2, "GroupAlternate1024BitModpGroup"),
            (5, "GroupModp1536Bit"),
            (14, "GroupModp2048Bit"),
            (15, "GroupModp3072Bit"),
            (16, "GroupModp4096Bit"),
            (17, "GroupModp6144Bit"),
            (18, "GroupModp8192Bit"),
            (19, "GroupRandomEcp256"),
            (20, "GroupRandomEcp384"),
            (21, "GroupRandomEcp521"),
        ],
        (1, "sa_group_type") => &[(1, "GroupModp"), (2, "GroupEcp"), (3, "GroupEc2n")],
        (1, "sa_life_type") => &[(1, "LifeTypeSeconds"), (2, "LifeTypeKilobytes")],
        (2, "alg_enc") => &[
            (1, "ENCR_DES_IV64"),
            (2, "ENCR_DES"),
            (3, "ENCR_3DES"),
            (4, "ENCR_RC5"),
            (5, "ENCR_IDEA"),
            (6, "ENCR_CAST"),
            (7, "ENCR_BLOWFISH"),
            (8, "ENCR_3IDEA"),
            (9, "ENCR_DES_IV32"),
            (11, "ENCR_NULL"),
            (12, "ENCR_AES_CBC"),
            (13, "ENCR_AES_CTR"),
            (14, "ENCR_AES_CCM_8"),
            (15, "ENCR_AES_CCM_12"),
            (16, "ENCR_AES_CCM_16"),
            (18, "ENCR_AES_GCM_8"),
            (19, "ENCR_AES_GCM_12"),
            (20, "ENCR_AES_GCM_16"),
            (23, "ENCR_CAMELLIA_CBC"),
            (28, "ENCR_CHACHA20_POLY1305"),
        ],
        (2, "alg_prf") => &[
            (1, "PRF_HMAC_MD5"),
            (2, "PRF_HMAC_SHA1"),
            (3, "PRF_HMAC_TIGER"),
            (4, "PRF_AES128_XCBC"),
            (5, "PRF_HMAC_SHA2_256"),
            (6, "PRF_HMAC_SHA2_384"),
            (7, "PRF_HMAC_SHA2_512"),
            (8, "PRF_AES128_CMAC"),
        ],
        (2, "alg_auth") => &[
            (0, "NONE"),
            (1, "AUTH_HMAC_MD5_96"),
            (2, "AUTH_HMAC_SHA1_96"),
            (3, "AUTH_DES_MAC"),
            (4, "AUTH_KPDK_MD5"),
            (5, "AUTH_AES_XCBC_96"),
            (8, "AUTH_AES_CMAC_96"),
            (12, "AUTH_HMAC_SHA2_256_128"),
            (13, "AUTH_HMAC_SHA2_384_192"),
            (14, "AUTH_HMAC_SHA2_512_256"),
        ],
        (2, "alg_dh") => &[
            (0, "None"),
            (1, "Modp768"),
            (2, "Modp1024"),
            (5, "Modp1536"),
            (14, "Modp2048"),
            (15, "Modp3072"),
            (16, "Modp4096"),
            (17, "Modp6144"),
            (18, "Modp8192"),
            (19, "Ecp256"),
            (20, "Ecp384"),
            (21, "Ecp521"),
            (22, "Modp1024s160"),
            (23, "Modp2048s224"),
            (24, "Modp2048s256"),
            (31, "Curve25519"),
        ],
        (2, "alg_esn") => &[(0, "NoESN"), (1, "ESN")],
        _ => &[],
    };
    find(names, value).unwrap_or("Unknown")
}

/// Returns the name of the kind of a notification of version 2 (RFC 7296, section 3.10.1).
pub(super) fn notification(kind: u64) -> String {
    const NAMES: Names = &[
        (1, "UNSUPPORTED_CRITICAL_PAYLOAD"),
        (4, "INVALID_IKE_SPI"),
        (5, "INVALID_MAJOR_VERSION"),
        (7, "INVALID_SYNTAX"),
        (9, "INVALID_MESSAGE_ID"),
        (11, "INVALID_SPI"),
        (14, "NO_PROPOSAL_CHOSEN"),
        (17, "INVALID_KE_PAYLOAD"),
        (24, "AUTHENTICATION_FAILED"),
        (34, "SINGLE_PAIR_REQUIRED"),
        (35, "NO_ADDITIONAL_SAS"),
        (36, "INTERNAL_ADDRESS_FAILURE"),
        (37, "FAILED_CP_REQUIRED"),
        (38, "TS_UNACCEPTABLE"),
        (39, "INVALID_SELECTORS"),
        (43, "TEMPORARY_FAILURE"),
        (44, "CHILD_SA_NOT_FOUND"),
        (16384, "INITIAL_CONTACT"),
        (16385, "SET_WINDOW_SIZE"),
        (16386, "ADDITIONAL_TS_POSSIBLE"),
        (16387, "IPCOMP_SUPPORTED"),
        (16388, "NAT_DETECTION_SOURCE_IP"),
        (16389, "NAT_DETECTION_DESTINATION_IP"),
        (16390, "COOKIE"),
        (16391, "USE_TRANSPORT_MODE"),
        (16392, "HTTP_CERT_LOOKUP_SUPPORTED"),
        (16393, "REKEY_SA"),
        (16394, "ESP_TFC_PADDING_NOT_SUPPORTED"),
        (16395, "NON_FIRST_FRAGMENTS_ALSO"),
    ];
    find(NAMES, kind).map_or_else(|| format!("NotifyType({kind})"), str::to_owned)
}

fn find(names: Names, number: u64) -> Option<&'static str> {
    names
        .iter()
        .find(|(known, _)| *known == number)
        .map(|(_, name)| *name)
}
