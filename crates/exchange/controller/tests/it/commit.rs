//! Commits against a scripted switch: bundles, refused bundles, and switches without bundles.

use millrace_controller::{Applied, CloseReason, CommitError, Outcome, Settings};
use millrace_flow::{Action, Instructions};
use millrace_openflow::*;
use millrace_types::*;

use crate::script::{Script, add, added, meter};

fn control(message: &Message) -> BundleControl {
    match message {
        Message::BundleControl(control) => *control,
        other => panic!("expected a bundle_control, found {other}"),
    }
}

/// Replies to the only message that was sent, which must be a bundle_control with this command.
fn answer(script: &mut Script, command: BundleCommand, reply: BundleCommand) {
    assert_eq!(script.progress(), []);
    let (xid, asked) = script.sent().remove(0);
    let asked = control(&asked);
    assert_eq!((asked.command, asked.flags), (command, BundleFlags::ALL));
    let reply = BundleControl {
        command: reply,
        ..asked
    };
    script.say(xid, &Message::BundleControl(reply));
}

/// Opens the bundle and returns the messages that were sent after it: the bundled ones, and the CLOSE.
fn open(script: &mut Script) -> Vec<(Xid, Message)> {
    answer(script, BundleCommand::Open, BundleCommand::OpenReply);
    assert_eq!(script.progress(), []);
    let sent = script.sent();
    let (close, adds) = sent.split_last().unwrap();
    assert_eq!(control(&close.1).command, BundleCommand::Close);
    assert!(adds.iter().all(|(_, add)| matches!(add, Message::BundleAdd(_))));
    sent
}

fn reply_to(script: &mut Script, (xid, asked): &(Xid, Message), command: BundleCommand) {
    let reply = BundleControl {
        command,
        ..control(asked)
    };
    script.say(*xid, &Message::BundleControl(reply));
}

fn outcome(script: &mut Script) -> Result<(), CommitError> {
    match script.outcome() {
        Some(Outcome::Commit(outcome)) => outcome,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_commit_is_one_bundle_and_a_barrier_and_is_done_when_both_are_answered() {
    let mut script = Script::ready(Settings::default());
    script.connection.commit((0..5).map(add).collect()).unwrap();
    let sent = open(&mut script);
    for (number, (xid, message)) in (0..5).zip(&sent) {
        let Message::BundleAdd(bundled) = message else {
            panic!("{message}");
        };
        assert_eq!(
            (*bundled.message.clone(), xid.0),
            (add(number), sent[0].0.0 + number)
        );
    }
    reply_to(&mut script, &sent[5], BundleCommand::CloseReply);
    assert_eq!(script.progress(), []);
    let sent = script.sent();
    assert_eq!(control(&sent[0].1).command, BundleCommand::Commit);
    assert_eq!(sent[1].1, Message::BarrierRequest);
    reply_to(&mut script, &sent[0], BundleCommand::CommitReply);
    assert_eq!(script.progress(), [], "the barrier is not answered");
    script.say(sent[1].0, &Message::BarrierReply);
    assert_eq!(outcome(&mut script), Ok(()));
}

#[test]
fn a_refused_message_is_named_and_the_bundle_is_discarded_without_a_commit() {
    let mut script = Script::ready(Settings::default());
    script.connection.commit((0..5).map(add).collect()).unwrap();
    let sent = open(&mut script);
    script.refuse(sent[3].0, ErrorCode::OFPFMFC_TABLE_FULL);
    script.refuse(sent[4].0, ErrorCode::OFPFMFC_TABLE_FULL);
    reply_to(&mut script, &sent[5], BundleCommand::CloseReply);
    assert_eq!(script.progress(), []);
    let last = script.sent();
    assert_eq!(control(&last[0].1).command, BundleCommand::Discard);
    assert_eq!(script.progress(), [], "the switch may still hold the bundle");
    reply_to(&mut script, &last[0], BundleCommand::DiscardReply);
    script.say(last[1].0, &Message::BarrierReply);
    let expected = CommitError::Refused {
        index: Some(3),
        xid: sent[3].0,
        message: Some(Box::new(add(3))),
        code: ErrorCode::OFPFMFC_TABLE_FULL,
        more_errors: 1,
        applied: Applied::Nothing,
    };
    assert_eq!(outcome(&mut script), Err(expected));
}

#[test]
fn a_message_that_fails_in_the_commit_is_named() {
    let mut script = Script::ready(Settings::default());
    script.connection.commit((0..2).map(add).collect()).unwrap();
    let sent = open(&mut script);
    reply_to(&mut script, &sent[2], BundleCommand::CloseReply);
    assert_eq!(script.progress(), []);
    let last = script.sent();
    script.refuse(sent[1].0, ErrorCode::OFPFMFC_OVERLAP);
    script.refuse(last[0].0, ErrorCode::OFPBFC_MSG_FAILED);
    script.say(last[1].0, &Message::BarrierReply);
    match outcome(&mut script) {
        Err(CommitError::Refused {
            index: Some(1),
            code,
            applied,
            ..
        }) => {
            assert_eq!((code, applied), (ErrorCode::OFPFMFC_OVERLAP, Applied::Nothing));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_switch_without_bundles_gets_the_messages_in_order_and_is_not_asked_again() {
    let mut script = Script::ready(Settings::default());
    let messages = vec![
        meter(1, MeterModCommand::Add),
        add(1),
        meter(2, MeterModCommand::Delete),
    ];
    script.connection.commit(messages.clone()).unwrap();
    assert_eq!(script.progress(), []);
    let (open, _) = script.sent().remove(0);
    script.refuse(open, ErrorCode::OFPBRC_BAD_EXPERIMENTER);
    for round in 0..2 {
        if round == 1 {
            script.connection.commit(messages.clone()).unwrap();
        }
        assert_eq!(script.progress(), []);
        let sent = script.sent();
        let found: Vec<_> = sent.iter().map(|(_, message)| message.clone()).collect();
        assert_eq!(found, [&messages[..], &[Message::BarrierRequest]].concat());
        script.say(sent[3].0, &Message::BarrierReply);
        assert_eq!(outcome(&mut script), Ok(()));
    }
    // Without a bundle, the switch executes the other messages although it refuses one.
    script.connection.commit(messages).unwrap();
    assert_eq!(script.progress(), []);
    let sent = script.sent();
    script.refuse(sent[1].0, ErrorCode::OFPFMFC_TABLE_FULL);
    script.say(sent[3].0, &Message::BarrierReply);
    match outcome(&mut script) {
        Err(CommitError::Refused {
            index: Some(1),
            applied: Applied::Partly,
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn meters_go_around_the_bundle_of_a_switch_that_takes_none_into_it() {
    let mut script = Script::ready(Settings::default());
    let messages = vec![
        add(1),
        meter(1, MeterModCommand::Delete),
        meter(2, MeterModCommand::Add),
    ];
    script.connection.commit(messages.clone()).unwrap();
    let sent = open(&mut script);
    script.refuse(sent[1].0, ErrorCode::OFPBFC_MSG_UNSUP);
    script.refuse(sent[2].0, ErrorCode::OFPBFC_MSG_UNSUP);
    reply_to(&mut script, &sent[3], BundleCommand::CloseReply);
    assert_eq!(script.progress(), []);
    let discard = script.sent();
    assert_eq!(control(&discard[0].1).command, BundleCommand::Discard);
    reply_to(&mut script, &discard[0], BundleCommand::DiscardReply);
    script.say(discard[1].0, &Message::BarrierReply);
    assert_eq!(script.progress(), []);
    let first = script.sent();
    assert_eq!(first[0].1, messages[2], "new meters come first");
    script.say(first[1].0, &Message::BarrierReply);
    let sent = open(&mut script);
    assert_eq!(sent.len(), 2);
    reply_to(&mut script, &sent[1], BundleCommand::CloseReply);
    assert_eq!(script.progress(), []);
    let commit = script.sent();
    reply_to(&mut script, &commit[0], BundleCommand::CommitReply);
    script.say(commit[1].0, &Message::BarrierReply);
    assert_eq!(script.progress(), []);
    let last = script.sent();
    assert_eq!(last[0].1, messages[1], "meters are deleted last");
    script.say(last[1].0, &Message::BarrierReply);
    assert_eq!(outcome(&mut script), Ok(()));
}

#[test]
fn meters_leave_a_bundle_that_the_switch_neither_closes_nor_discards_after_their_refusal() {
    let mut script = Script::ready(Settings::default());
    let messages = vec![meter(2, MeterModCommand::Add), add(1)];
    script.connection.commit(messages.clone()).unwrap();
    let sent = open(&mut script);
    script.refuse(sent[0].0, ErrorCode::OFPBFC_MSG_UNSUP);
    script.refuse(sent[2].0, ErrorCode::OFPBFC_MSG_FAILED);
    assert_eq!(script.progress(), []);
    let discard = script.sent();
    assert_eq!(control(&discard[0].1).command, BundleCommand::Discard);
    script.refuse(discard[0].0, ErrorCode::OFPBFC_BAD_ID);
    script.say(discard[1].0, &Message::BarrierReply);
    assert_eq!(script.progress(), []);
    let first = script.sent();
    assert_eq!(first[0].1, messages[0], "the meter comes before the bundle");
    script.say(first[1].0, &Message::BarrierReply);
    let sent = open(&mut script);
    assert_eq!(sent.len(), 2, "the entry and the CLOSE");
    reply_to(&mut script, &sent[1], BundleCommand::CloseReply);
    assert_eq!(script.progress(), []);
    let commit = script.sent();
    reply_to(&mut script, &commit[0], BundleCommand::CommitReply);
    script.say(commit[1].0, &Message::BarrierReply);
    assert_eq!(outcome(&mut script), Ok(()));
}

#[test]
fn a_message_that_is_too_long_says_if_others_were_sent_before_it() {
    let mut script = Script::ready(Settings::default());
    let too_long = || {
        let outputs = vec![Action::output(PortNo::from_raw(2)); 5000];
        Message::FlowMod(FlowMod {
            instructions: Instructions::apply(outputs),
            ..added(9)
        })
    };
    script.connection.commit(vec![add(1)]).unwrap();
    assert_eq!(script.progress(), []);
    let (open, _) = script.sent().remove(0);
    script.refuse(open, ErrorCode::OFPBRC_BAD_EXPERIMENTER);
    assert_eq!(script.progress(), []);
    let sent = script.sent();
    script.say(sent[1].0, &Message::BarrierReply);
    assert_eq!(outcome(&mut script), Ok(()));
    for (messages, index, applied) in [
        (vec![too_long(), add(1)], 0, Applied::Nothing),
        (vec![add(1), too_long()], 1, Applied::Partly),
    ] {
        script.connection.commit(messages).unwrap();
        assert_eq!(script.progress(), []);
        let sent = script.sent();
        assert_eq!(sent.len(), index + 1, "the messages before it, and the barrier");
        script.say(sent[index].0, &Message::BarrierReply);
        assert_eq!(outcome(&mut script), Err(CommitError::TooLong { index, applied }));
    }
}

#[test]
fn a_connection_that_ends_says_if_the_switch_may_have_committed() {
    for (is_committed, expected) in [(false, Applied::Nothing), (true, Applied::Unknown)] {
        let mut script = Script::ready(Settings::default());
        script.connection.commit((0..3).map(add).collect()).unwrap();
        let sent = open(&mut script);
        if is_committed {
            reply_to(&mut script, &sent[3], BundleCommand::CloseReply);
            assert_eq!(script.progress(), []);
        }
        script.connection.close(CloseReason::Eof);
        let progress = script.progress();
        let millrace_controller::Progress::Done(_, Outcome::Commit(Err(error))) = &progress[0] else {
            panic!("{progress:?}");
        };
        let reason = CloseReason::Eof;
        assert_eq!(
            *error,
            CommitError::Closed {
                reason,
                applied: expected
            }
        );
    }
}

#[test]
fn a_large_commit_is_encoded_as_the_switch_reads() {
    let mut script = Script::ready(Settings::default());
    script.connection.commit((0..20_000).map(add).collect()).unwrap();
    answer(&mut script, BundleCommand::Open, BundleCommand::OpenReply);
    assert_eq!(script.progress(), []);
    assert!(script.connection.output().len() < 66 * 1024);
    let sent = script.sent();
    assert_eq!(sent.len(), 20_001);
}

#[test]
fn a_message_that_changes_nothing_is_refused_before_anything_is_sent() {
    let mut script = Script::ready(Settings::default());
    script
        .connection
        .commit(vec![add(1), Message::BarrierRequest])
        .unwrap();
    let expected = CommitError::NotAModification {
        index: 1,
        type_: MessageType::BarrierRequest,
    };
    assert_eq!(outcome(&mut script), Err(expected));
    assert_eq!(script.sent(), []);
    // A commit without messages is a barrier.
    script.connection.commit(Vec::new()).unwrap();
    assert_eq!(script.progress(), []);
    let (xid, _) = script.sent().remove(0);
    script.say(xid, &Message::BarrierReply);
    assert_eq!(outcome(&mut script), Ok(()));
}
