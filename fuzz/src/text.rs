//! Flows in text form.

use millrace_flow::compose::{MAX_FRAME_SIZE, MIN_FRAME_SIZE, PacketText};
use millrace_flow::text::{CookieMatch, FlowCommand, FlowModText, FlowText};
use millrace_flow::{Instructions, Match};
use millrace_wire::{Depth, Layers};

/// Parses the bytes as a match, instructions, a flow entry, flow_mods, a cookie and a packet.
///
/// Properties: a parsed value prints to a text that parses to the same value; a composed packet has a valid size; an
/// error names a column within the text.
pub(crate) fn text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(given) = text.parse::<Match>() {
        assert_eq!(given.to_string().parse(), Ok(given));
    }
    if let Ok(given) = text.parse::<Instructions>() {
        let printed = given.to_string();
        let again: Instructions = printed.parse().expect("what was printed can be read");
        assert_eq!(again.to_string(), printed);
    }
    match text.parse::<FlowText>() {
        Ok(given) => {
            let again: FlowText = given.to_string().parse().expect("what was printed can be read");
            assert_eq!(again.matching, given.matching);
        }
        Err(error) => assert!(error.column <= text.chars().count() + 1, "{error}"),
    }
    for command in [
        FlowCommand::Add,
        FlowCommand::Modify,
        FlowCommand::ModifyStrict,
        FlowCommand::Delete,
        FlowCommand::DeleteStrict,
    ] {
        if let Err(error) = FlowModText::parse(command, text) {
            assert!(error.column <= text.chars().count() + 1, "{error}");
        }
    }
    if let Ok(given) = text.parse::<CookieMatch>() {
        assert_eq!(given.to_string().parse(), Ok(given));
    }
    if let Ok(packet) = text.parse::<PacketText>()
        && let Ok(frame) = packet.frame()
    {
        assert!((MIN_FRAME_SIZE..=MAX_FRAME_SIZE).contains(&frame.len()));
        let layers = Layers::parse(&frame, Depth::All);
        assert_eq!(layers, Layers::parse(&frame, Depth::All));
    }
}
