//! Tests of the driver against a Millrace switch in this process.

use std::sync::Arc;
use std::time::Instant;

use millrace_agent::Switch;
use millrace_agent::channel::ChannelKind;
use millrace_controller::driver::{Config, RoleRefused, Session, Target, connect, listen};
use millrace_controller::{Applied, CloseReason, CommitError, DumpFilter, Event, RequestError};
use millrace_datapath::io::HeapBackend;
use millrace_datapath::{Datapath, Idle, Spread, Workers};
use millrace_flow::{Action, Bucket};
use millrace_openflow::flow_monitor::{FlowMonitorFlags, FlowMonitorRequest, FlowUpdate};
use millrace_openflow::*;
use millrace_types::*;

use crate::script::{add, added, meter};

/// The longest wait for an event.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// A switch with a bridge `br0`, two ports and a listener. Dropping it removes the bridge.
pub(crate) struct TestSwitch {
    pub(crate) switch: Arc<Switch<HeapBackend>>,
    pub(crate) revision: u64,
}

impl TestSwitch {
    pub(crate) async fn start(settings: &str) -> TestSwitch {
        let workers = Workers {
            cores: vec![None],
            idle: Idle::Adaptive,
            spread: Spread::Auto,
        };
        let datapath = Arc::new(Datapath::start(Arc::new(HeapBackend::new()), &workers).unwrap());
        let switch = Arc::new(Switch::new(datapath, tokio::runtime::Handle::current(), 7));
        let mut test = TestSwitch { switch, revision: 0 };
        test.apply(settings, 2).await;
        test
    }

    pub(crate) async fn apply(&mut self, settings: &str, ports: u32) {
        let mut text = format!("[[bridge]]\nname = \"br0\"\ntables = 8\n{settings}\n");
        for number in 1..=ports {
            text +=
                &format!("[[bridge.port]]\nname = \"p{number}\"\nnumber = {number}\ndevice = \"memory\"\n");
        }
        self.revision += 1;
        let (switch, revision) = (Arc::clone(&self.switch), self.revision);
        let config = millrace_model::Config::from_toml("test.toml", &text).unwrap();
        // `apply` blocks.
        let status = tokio::task::spawn_blocking(move || switch.apply(revision, &config))
            .await
            .unwrap();
        assert_eq!(status.problems, []);
    }

    /// Connects to the listener of the switch.
    pub(crate) async fn session(&self) -> Session {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let channels = self.switch.channels("br0").unwrap();
            let listener = channels
                .iter()
                .find(|status| status.kind == ChannelKind::Listener);
            if let Some(address) = listener.and_then(|status| status.address) {
                return connect(&Config::new(Target::Tcp(address))).await.unwrap();
            }
            assert!(Instant::now() < deadline, "waited in vain for the listener");
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }
}

impl Drop for TestSwitch {
    fn drop(&mut self) {
        self.switch.stop(false);
    }
}

pub(crate) fn group(number: u32, port: u32) -> Message {
    Message::GroupMod(GroupMod {
        command: GroupModCommand::Add,
        type_: GroupType::FastFailover,
        group: GroupId(number),
        buckets: [Bucket {
            weight: 0,
            watch_port: PortNo::from_raw(port),
            watch_group: GroupId::ANY,
            actions: [Action::output(PortNo::from_raw(port))].into(),
        }]
        .into(),
    })
}

const LISTEN: &str = "listen = [\"ptcp:0\"]";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_has_every_entry_group_and_meter_of_a_commit() {
    let test = TestSwitch::start(LISTEN).await;
    let session = test.session().await;
    assert_eq!(session.features.tables, 8);
    let mut messages = vec![meter(4, MeterModCommand::Add), group(9, 1)];
    // The listing takes more than one message.
    messages.extend((0..3000).map(add));
    session.handle.commit(messages).await.unwrap();
    let dump = session.handle.dump(DumpFilter::ALL).await.unwrap();
    assert_eq!(
        (dump.meters.len(), dump.groups.len(), dump.ports.len()),
        (1, 1, 2)
    );
    assert_eq!(dump.groups[0].group, GroupId(9));
    let entries = dump.into_entries().unwrap();
    assert_eq!(entries.len(), 3000);
    for number in 0..3000 {
        let wanted = added(number);
        let identity = millrace_controller::FlowIdentity {
            table: wanted.table,
            priority: wanted.priority,
            matching: wanted.match_,
        };
        let entry = &entries[&identity];
        assert_eq!(
            (entry.cookie, &entry.instructions),
            (wanted.cookie, &wanted.instructions)
        );
    }
    let filter = DumpFilter {
        cookie: Cookie(0x40),
        cookie_mask: u64::MAX << 4,
        ..DumpFilter::ALL
    };
    let some = session.handle.dump(filter).await.unwrap();
    let mut cookies: Vec<_> = some.flows.iter().map(|flow| flow.cookie.0).collect();
    cookies.sort_unstable();
    assert_eq!(cookies, (0x40..0x50).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_with_one_wrong_message_changes_nothing_and_names_it() {
    let test = TestSwitch::start(LISTEN).await;
    let session = test.session().await;
    session.handle.commit(vec![add(1)]).await.unwrap();
    // A message that is refused when it is added, and one that is refused by the commit.
    let wrong_table = Message::FlowMod(FlowMod {
        table: TableId(200),
        ..added(7)
    });
    for (wrong, code) in [
        (wrong_table, ErrorCode::OFPFMFC_BAD_TABLE_ID),
        (
            meter(5, MeterModCommand::Modify),
            ErrorCode::OFPMMFC_UNKNOWN_METER,
        ),
    ] {
        let delete = Message::FlowMod(FlowMod::delete(TableId::ALL, millrace_flow::Match::any()));
        let outcome = session
            .handle
            .commit(vec![delete, add(2), wrong.clone(), add(3)])
            .await;
        match outcome {
            Err(CommitError::Refused {
                index,
                message,
                code: found,
                applied,
                ..
            }) => {
                assert_eq!((index, found, applied), (Some(2), code, Applied::Nothing));
                assert_eq!(*message.unwrap(), wrong);
            }
            other => panic!("{other:?}"),
        }
        let dump = session.handle.dump(DumpFilter::ALL).await.unwrap();
        assert_eq!(dump.flows.len(), 1);
        assert_eq!(dump.flows[0].cookie, Cookie(1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_slept_is_refused_by_the_switch() {
    let test = TestSwitch::start(LISTEN).await;
    let old = test.session().await;
    let role = old.handle.set_role(RequestedRole::Master, 5).await.unwrap();
    assert_eq!(role.role, RequestedRole::Master);
    let new = test.session().await;
    new.handle.set_role(RequestedRole::Master, 6).await.unwrap();
    match old.handle.commit(vec![add(1)]).await {
        Err(CommitError::Refused { code, .. }) => assert!(
            [ErrorCode::OFPBRC_IS_SLAVE, ErrorCode::OFPBFC_EPERM].contains(&code),
            "{code}"
        ),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        old.handle.set_role(RequestedRole::Master, 5).await,
        Err(RoleRefused::Stale)
    );
    new.handle.commit(vec![add(2)]).await.unwrap();
    assert_eq!(new.handle.dump(DumpFilter::ALL).await.unwrap().flows.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ports_and_foreign_changes_are_events_and_the_end_has_a_reason() {
    let mut test = TestSwitch::start(LISTEN).await;
    let Session {
        handle, mut events, ..
    } = test.session().await;
    let monitor = FlowMonitorRequest {
        id: 1,
        flags: FlowMonitorFlags::ALL.without(FlowMonitorFlags::OWN),
        out_port: PortNo::ANY,
        table: TableId::ALL,
        match_: millrace_flow::Match::any(),
    };
    handle.monitor(&[monitor]).await.unwrap();
    let foreign = test.session().await;
    foreign.handle.commit(vec![add(77)]).await.unwrap();
    let is_seventy_seven =
        |update: &FlowUpdate| matches!(update, FlowUpdate::Full(full) if full.cookie == Cookie(77));
    expect(
        &mut events,
        |event| matches!(event, Event::FlowUpdates(updates) if updates.iter().any(is_seventy_seven)),
    )
    .await;
    test.apply(LISTEN, 3).await;
    expect(&mut events, |event| {
        matches!(event, Event::PortStatus(status) if status.reason == PortReason::Add && status.port.name == "p3")
    })
    .await;
    assert!(matches!(
        handle
            .request(Message::RoleRequest(RoleMessage {
                role: RequestedRole::NoChange,
                generation_id: 0
            }))
            .await,
        Ok(Message::RoleReply(_))
    ));
    test.switch.stop(false);
    let mut waiting = handle.clone();
    let reason = tokio::time::timeout(PATIENCE, waiting.closed()).await.unwrap();
    assert_eq!(reason, CloseReason::Eof);
    assert_eq!(
        handle.request(Message::BarrierRequest).await,
        Err(RequestError::Closed(reason))
    );
    while events.next().await.is_some() {}
}

async fn expect(events: &mut millrace_controller::driver::Events, mut is_it: impl FnMut(&Event) -> bool) {
    let wait = async {
        while let Some(event) = events.next().await {
            if is_it(&event) {
                return true;
            }
        }
        false
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn switches_connect_to_the_listener_and_a_dropped_session_is_closed() {
    let mut listener = listen(Config::new(Target::Tcp("127.0.0.1:0".parse().unwrap())))
        .await
        .unwrap();
    let address = listener.address().unwrap();
    let controllers = format!("controllers = [\"tcp:{address}\"]");
    let mut test = TestSwitch::start(&controllers).await;
    let session = tokio::time::timeout(PATIENCE, listener.accept())
        .await
        .unwrap()
        .unwrap();
    session.handle.commit(vec![add(1)]).await.unwrap();
    // The switch connects again, and keeps its entries.
    drop(session);
    let again = tokio::time::timeout(PATIENCE, listener.accept())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(again.handle.dump(DumpFilter::ALL).await.unwrap().flows.len(), 1);
    test.apply("", 2).await;
    let mut handle = again.handle.clone();
    let reason = tokio::time::timeout(PATIENCE, handle.closed()).await.unwrap();
    assert_eq!(reason, CloseReason::Eof);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_by_cookie_mask_has_the_entries_of_one_owner_while_another_controller_changes_others() {
    let test = TestSwitch::start(LISTEN).await;
    let session = test.session().await;
    let owned = |number: u32| {
        let owner = if number % 6 == 5 { 0x02 << 56 } else { 0x4d << 56 };
        Message::FlowMod(FlowMod {
            cookie: Cookie(owner | u64::from(number)),
            ..added(number)
        })
    };
    session
        .handle
        .commit((0..12_000).map(owned).collect())
        .await
        .unwrap();
    let filter = DumpFilter {
        cookie: Cookie(0x4d << 56),
        cookie_mask: 0xff << 56,
        ..DumpFilter::ALL
    };
    let other = test.session().await;
    let changes = async {
        for number in 0..20 {
            let foreign = FlowMod {
                cookie: Cookie(0x03 << 56),
                ..added(50_000 + number)
            };
            other
                .handle
                .commit(vec![Message::FlowMod(foreign)])
                .await
                .unwrap();
        }
    };
    let listing = async {
        for _ in 0..5 {
            let dump = session.handle.dump(filter).await.unwrap();
            assert_eq!(dump.flows.len(), 10_000);
        }
    };
    tokio::join!(changes, listing);
}
