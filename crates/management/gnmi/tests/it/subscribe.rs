//! Subscriptions in virtual time.

use std::time::Duration;

use millrace_gnmi::proto::gnmi::subscription_list::Mode;
use millrace_gnmi::proto::gnmi::{Encoding, Notification, Subscription, SubscriptionList, SubscriptionMode};
use millrace_gnmi::subscribe::Subscriptions;
use millrace_gnmi::view::View;
use millrace_yang::datastore::Datastore;
use serde_json::{Map, Value as Json, json};
use tonic::Code;

use super::fake::{Switch, path, state};

const SECOND: Duration = Duration::from_secs(1);

fn list(mode: Mode, subscriptions: Vec<Subscription>) -> SubscriptionList {
    SubscriptionList {
        subscription: subscriptions,
        mode: mode.into(),
        encoding: Encoding::Proto.into(),
        ..SubscriptionList::default()
    }
}

fn one(text: &str, mode: SubscriptionMode) -> Subscription {
    Subscription {
        path: Some(path(text)),
        mode: mode.into(),
        ..Subscription::default()
    }
}

fn view(state: &Map<String, Json>) -> View {
    let document = Switch::new().running().unwrap().document;
    View::new(0, &document, state)
}

/// Returns the last names of the updated and deleted paths.
fn names(messages: &[Notification]) -> (Vec<String>, usize) {
    let last = |path: &millrace_gnmi::proto::gnmi::Path| path.elem.last().unwrap().name.clone();
    let updated = messages
        .iter()
        .flat_map(|message| &message.update)
        .map(|update| last(update.path.as_ref().unwrap()));
    (
        updated.collect(),
        messages.iter().map(|message| message.delete.len()).sum(),
    )
}

const STATE: &str = "/interfaces/interface[name=br0|p1]/state";

#[test]
fn on_change_sends_what_changed_and_deletes_what_is_gone_and_no_counters() {
    let request = list(Mode::Stream, vec![one(STATE, SubscriptionMode::OnChange)]);
    let mut subscriptions = Subscriptions::new(&request, Duration::ZERO).unwrap();
    let first = names(&subscriptions.snapshot(&view(&state(1)), 0).unwrap()).0;
    assert!(
        first.contains(&"oper-status".to_owned()) && first.contains(&"in-octets".to_owned()),
        "{first:?}"
    );
    assert!(subscriptions.changed(&view(&state(2)), 0).unwrap().is_empty());
    let mut down = state(3);
    down["port"][0]["link"] = json!("down");
    assert_eq!(
        names(&subscriptions.changed(&view(&down), 0).unwrap()),
        (vec!["oper-status".to_owned()], 0)
    );
    // Without the running port, its state is gone.
    let (updated, deleted) = names(&subscriptions.changed(&view(&Map::new()), 0).unwrap());
    assert!(updated.is_empty() && deleted > 5, "{updated:?} {deleted}");
    assert_eq!(subscriptions.next_due(), None);
}

#[test]
fn samples_come_at_their_interval_and_redundant_ones_are_left_out_on_request() {
    let counters = format!("{STATE}/counters");
    let sample = |suppress_redundant| Subscription {
        sample_interval: 1_000_000_000,
        suppress_redundant,
        heartbeat_interval: if suppress_redundant { 5_000_000_000 } else { 0 },
        ..one(&counters, SubscriptionMode::Sample)
    };
    let mut all = Subscriptions::new(&list(Mode::Stream, vec![sample(false)]), Duration::ZERO).unwrap();
    all.snapshot(&view(&state(1)), 0).unwrap();
    assert_eq!(all.next_due(), Some(SECOND));
    assert!(all.due(&view(&state(1)), SECOND / 2, 0).unwrap().is_empty());
    assert_eq!(names(&all.due(&view(&state(1)), SECOND, 0).unwrap()).0.len(), 6);
    // A late sample is not made up for.
    assert_eq!(
        names(&all.due(&view(&state(1)), 7 * SECOND, 0).unwrap()).0.len(),
        6
    );
    assert_eq!(all.next_due(), Some(8 * SECOND));

    let mut changed = Subscriptions::new(&list(Mode::Stream, vec![sample(true)]), Duration::ZERO).unwrap();
    changed.snapshot(&view(&state(1)), 0).unwrap();
    assert!(changed.due(&view(&state(1)), SECOND, 0).unwrap().is_empty());
    assert_eq!(
        names(&changed.due(&view(&state(2)), 2 * SECOND, 0).unwrap()).0,
        ["in-octets"]
    );
    // The heartbeat sends all.
    assert_eq!(
        names(&changed.due(&view(&state(2)), 5 * SECOND, 0).unwrap())
            .0
            .len(),
        6
    );
}

#[test]
fn the_target_chooses_samples_for_counters_and_changes_for_the_rest() {
    let request = list(Mode::Stream, vec![one(STATE, SubscriptionMode::TargetDefined)]);
    let mut subscriptions = Subscriptions::new(&request, Duration::ZERO).unwrap();
    subscriptions.snapshot(&view(&state(1)), 0).unwrap();
    assert!(subscriptions.changed(&view(&state(2)), 0).unwrap().is_empty());
    let (sampled, _) = names(&subscriptions.due(&view(&state(2)), 10 * SECOND, 0).unwrap());
    assert!(
        sampled.len() == 6
            && sampled
                .iter()
                .all(|name| name.starts_with("in-") || name.starts_with("out-")),
        "{sampled:?}"
    );
}

#[test]
fn updates_only_leaves_the_first_values_out() {
    let mut request = list(Mode::Stream, vec![one(STATE, SubscriptionMode::OnChange)]);
    request.updates_only = true;
    let mut subscriptions = Subscriptions::new(&request, Duration::ZERO).unwrap();
    assert!(subscriptions.snapshot(&view(&state(1)), 0).unwrap().is_empty());
    assert!(subscriptions.changed(&view(&state(1)), 0).unwrap().is_empty());
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let code = |request: SubscriptionList| Subscriptions::new(&request, Duration::ZERO).unwrap_err().code();
    assert_eq!(code(list(Mode::Stream, vec![])), Code::InvalidArgument);
    let counters = format!("{STATE}/counters/in-octets");
    assert_eq!(
        code(list(
            Mode::Stream,
            vec![one(&counters, SubscriptionMode::OnChange)]
        )),
        Code::InvalidArgument
    );
    let fast = Subscription {
        sample_interval: 1,
        ..one(STATE, SubscriptionMode::Sample)
    };
    assert_eq!(code(list(Mode::Stream, vec![fast])), Code::InvalidArgument);
    let mut ascii = list(Mode::Once, vec![one(STATE, SubscriptionMode::Sample)]);
    ascii.encoding = Encoding::Ascii.into();
    assert_eq!(code(ascii), Code::Unimplemented);
    let unknown = list(Mode::Once, vec![one("/nothing", SubscriptionMode::Sample)]);
    let mut subscriptions = Subscriptions::new(&unknown, Duration::ZERO).unwrap();
    assert_eq!(
        subscriptions.snapshot(&view(&state(1)), 0).unwrap_err().code(),
        Code::InvalidArgument
    );
}
