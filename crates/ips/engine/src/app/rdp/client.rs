//! The core data of a client of RDP ([MS-RDPBCGR], section 2.2.1.3.2), in words.

use crate::app::framed::{little, take};
use crate::app::record::Fields;
use crate::app::words::{word, words};

/// Versions of the protocol.
const VERSIONS: &[(u64, &str)] = &[
    (0x0008_0001, "v4"),
    (0x0008_0004, "v5"),
    (0x0008_0005, "v10.0"),
    (0x0008_0006, "v10.1"),
    (0x0008_0007, "v10.2"),
    (0x0008_0008, "v10.3"),
    (0x0008_0009, "v10.4"),
    (0x0008_000a, "v10.5"),
    (0x0008_000b, "v10.6"),
    (0x0008_000c, "v10.7"),
];

/// Color depths that are named by a number, in bits.
const DEPTHS: [(u64, u8); 5] = [(0xca00, 4), (0xca01, 8), (0xca02, 15), (0xca03, 16), (0xca04, 24)];

/// Systems by their builds.
const BUILDS: &[(u64, &str)] = &[
    (2195, "Windows 2000"),
    (2600, "Windows XP"),
    (3790, "Windows Server 2003"),
    (6000, "Windows Vista"),
    (6001, "Windows Vista SP1"),
    (6002, "Windows Vista SP2"),
    (7600, "Windows 7"),
    (7601, "Windows 7 SP1"),
    (9200, "Windows 8"),
    (9600, "Windows 8.1"),
    (10240, "Windows 10"),
    (10586, "Windows 10"),
    (14393, "Windows 10"),
    (15063, "Windows 10"),
    (16299, "Windows 10"),
    (17134, "Windows 10"),
    (17763, "Windows 10"),
    (18362, "Windows 10"),
    (18363, "Windows 10"),
    (19041, "Windows 10"),
    (19042, "Windows 10"),
    (19043, "Windows 10"),
    (19044, "Windows 10"),
    (19045, "Windows 10"),
    (22000, "Windows 11"),
    (22621, "Windows 11"),
    (22631, "Windows 11"),
    (26100, "Windows 11"),
];

/// Locales by their identifiers ([MS-LCID], section 2.2).
const LOCALES: &[(u64, &str)] = &[
    (0x0401, "ar-SA"),
    (0x0402, "bg-BG"),
    (0x0404, "zh-TW"),
    (0x0405, "cs-CZ"),
    (0x0406, "da-DK"),
    (0x0407, "de-DE"),
    (0x0408, "el-GR"),
    (0x0409, "en-US"),
    (0x040a, "es-ES"),
    (0x040b, "fi-FI"),
    (0x040c, "fr-FR"),
    (0x040d, "he-IL"),
    (0x040e, "hu-HU"),
    (0x040f, "is-IS"),
    (0x0410, "it-IT"),
    (0x0411, "ja-JP"),
    (0x0412, "ko-KR"),
    (0x0413, "nl-NL"),
    (0x0414, "nb-NO"),
    (0x0415, "pl-PL"),
    (0x0416, "pt-BR"),
    (0x0418, "ro-RO"),
    (0x0419, "ru-RU"),
    (0x041a, "hr-HR"),
    (0x041b, "sk-SK"),
    (0x041d, "sv-SE"),
    (0x041e, "th-TH"),
    (0x041f, "tr-TR"),
    (0x0421, "id-ID"),
    (0x0422, "uk-UA"),
    (0x0424, "sl-SI"),
    (0x0425, "et-EE"),
    (0x0426, "lv-LV"),
    (0x0427, "lt-LT"),
    (0x042a, "vi-VN"),
    (0x0439, "hi-IN"),
    (0x0804, "zh-CN"),
    (0x0807, "de-CH"),
    (0x0809, "en-GB"),
    (0x080a, "es-MX"),
    (0x080c, "fr-BE"),
    (0x0813, "nl-BE"),
    (0x0816, "pt-PT"),
    (0x0c07, "de-AT"),
    (0x0c09, "en-AU"),
    (0x0c0a, "es-ES"),
    (0x0c0c, "fr-CA"),
    (0x1009, "en-CA"),
    (0x100c, "fr-CH"),
    (0x1409, "en-NZ"),
    (0x1809, "en-IE"),
    (0x4009, "en-IN"),
];

const KEYBOARDS: &[(u64, &str)] = &[
    (1, "xt"),
    (2, "ico"),
    (3, "at"),
    (4, "enhanced"),
    (5, "1050"),
    (6, "9140"),
    (7, "jp"),
];

const CAPABILITIES: &[(u64, &str)] = &[
    (0x0001, "support_errinfo_pdf"),
    (0x0002, "want_32bpp_session"),
    (0x0004, "support_statusinfo_pdu"),
    (0x0008, "strong_asymmetric_keys"),
    (VALID_CONNECTION_TYPE, "valid_connection_type"),
    (0x0040, "support_monitor_layout_pdu"),
    (0x0080, "support_netchar_autodetect"),
    (0x0100, "support_dynvc_gfx_protocol"),
    (0x0200, "support_dynamic_time_zone"),
    (0x0400, "support_heartbeat_pdu"),
];
/// The capability that the type of the connection is set.
const VALID_CONNECTION_TYPE: u64 = 0x0020;

const CONNECTIONS: &[(u64, &str)] = &[
    (1, "modem"),
    (2, "low_broadband"),
    (3, "satellite"),
    (4, "high_broadband"),
    (5, "wan"),
    (6, "lan"),
    (7, "autodetect"),
];

/// Returns the text of UTF-16 in little-endian order, up to its first zero.
fn utf16(bytes: &[u8]) -> Vec<u8> {
    let units = bytes
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let units: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
    String::from_utf16_lossy(&units).into_bytes()
}

/// Writes a text, unless it is empty.
fn unless_empty(name: &'static str, text: &[u8], out: &mut Fields) {
    if !text.is_empty() {
        out.text(name, text);
    }
}

/// Writes a number, unless it is 0.
fn unless_zero(name: &'static str, value: u64, out: &mut Fields) {
    if value != 0 {
        out.number(name, value);
    }
}

/// Writes the fields of the core data, up to the first one that is not there.
pub(super) fn core(mut bytes: &[u8], out: &mut Fields) -> Option<()> {
    let colors = colors(bytes);
    let version = little(&mut bytes, 4)?;
    out.text("version", word(VERSIONS, version).unwrap_or("unknown").as_bytes());
    for name in ["desktop_width", "desktop_height"] {
        out.number(name, little(&mut bytes, 2)?);
    }
    if let Some(bits) = colors {
        out.number("color_depth", bits);
    }
    take(&mut bytes, 4)?;
    let layout = little(&mut bytes, 4)?;
    // The high word of a layout names a variant.
    out.text(
        "keyboard_layout",
        word(LOCALES, layout & 0xffff).unwrap_or("unknown").as_bytes(),
    );
    let build = little(&mut bytes, 4)?;
    let system = word(BUILDS, build).map_or_else(|| format!("unknown-{build}"), str::to_owned);
    out.text("build", system.as_bytes());
    unless_empty("client_name", &utf16(take(&mut bytes, 32)?), out);
    let keyboard = little(&mut bytes, 4)?;
    if let Some(keyboard) = word(KEYBOARDS, keyboard) {
        out.text("keyboard_type", keyboard.as_bytes());
    }
    unless_zero("keyboard_subtype", little(&mut bytes, 4)?, out);
    unless_zero("function_keys", little(&mut bytes, 4)?, out);
    unless_empty("ime", &utf16(take(&mut bytes, 64)?), out);
    take(&mut bytes, 2)?;
    unless_zero("product_id", little(&mut bytes, 2)?, out);
    unless_zero("serial_number", little(&mut bytes, 4)?, out);
    take(&mut bytes, 4)?;
    let capabilities = little(&mut bytes, 2)?;
    if words(CAPABILITIES, capabilities).next().is_some() {
        out.texts("capabilities", words(CAPABILITIES, capabilities));
    }
    unless_empty("id", &utf16(take(&mut bytes, 64)?), out);
    let connection = little(&mut bytes, 1)?;
    if capabilities & VALID_CONNECTION_TYPE != 0
        && let Some(connection) = word(CONNECTIONS, connection)
    {
        out.text("connection_hint", connection.as_bytes());
    }
    // Padding, and the protocol that the server chose.
    take(&mut bytes, 5)?;
    for (name, size) in [
        ("physical_width", 4),
        ("physical_height", 4),
        ("desktop_orientation", 2),
        ("scale_factor", 4),
        ("device_scale_factor", 4),
    ] {
        out.number(name, little(&mut bytes, size)?);
    }
    Some(())
}

/// Returns the color depth in bits: the newest of the three fields that name it.
fn colors(bytes: &[u8]) -> Option<u8> {
    /// Offsets of colorDepth, postBeta2ColorDepth and highColorDepth.
    const AT: [usize; 3] = [8, 128, 136];
    let [old, middle, high] = AT.map(|at| {
        let mut rest = bytes.get(at..)?;
        little(&mut rest, 2)
    });
    let high = high
        .and_then(|bits| u8::try_from(bits).ok())
        .filter(|bits| *bits != 0);
    let depth = |value| word(&DEPTHS, value);
    high.or_else(|| middle.and_then(depth))
        .or_else(|| old.and_then(depth))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_color_depth_counts() {
        let mut bytes = vec![0; 216];
        for (at, value, expected) in [
            (8, 0xca01_u16, Some(8)),
            (128, 0xca03, Some(16)),
            (136, 24, Some(24)),
        ] {
            bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
            assert_eq!(colors(&bytes), expected);
        }
        assert_eq!(colors(&bytes[..130]), Some(16));
        assert_eq!(colors(&bytes[..128]), Some(8));
        assert_eq!(colors(&[0; 20]), None);
    }

    #[test]
    fn any_bytes_have_the_fields_in_front_of_the_first_that_is_missing() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut before = 0;
        for size in 0..bytes.len() {
            let mut out = Fields::default();
            let is_whole = core(&bytes[..size], &mut out).is_some();
            assert!(out.list.len() >= before || is_whole, "{size}");
            before = out.list.len();
        }
        assert!(before > 15);
    }
}
