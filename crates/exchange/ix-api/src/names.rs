//! Names of objects in texts for people, instead of identifiers.
//!
//! The model and the engine name objects by their identifiers, because names change and are not unique. Here is the place
//! where their reasons become answers for a reader. An object that the reader may not know keeps a general
//! word. Operators also see the identifier, which they use in commands.

use millrace_ix_model::{Coded, Exchange, ObjectId, PortId, Reason};

use crate::access::Principal;
use crate::problem::Problem;

/// The names of objects, as a principal knows them.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a>(pub(crate) &'a Principal);

impl Names<'_> {
    /// Returns a problem with names. The answer for an absent object stays as it is: it is the same for objects that
    /// others have, and it repeats the identifier of the request.
    pub(crate) fn problem(&self, mut problem: Problem) -> Problem {
        if problem.status == 404 {
            return problem;
        }
        problem.detail = self.text(&problem.detail).into();
        for coded in problem
            .coded
            .iter_mut()
            .chain(problem.errors.iter_mut().flat_map(|error| error.coded.iter_mut()))
        {
            for value in coded.values.values_mut() {
                *value = self.text(value);
            }
        }
        for error in &mut problem.errors {
            error.detail = self.text(&error.detail);
        }
        problem
    }

    /// Returns a reason with names.
    pub(crate) fn reason(&self, reason: Reason) -> Reason {
        let named = |coded: Coded| Coded {
            values: coded
                .values
                .into_iter()
                .map(|(name, value)| (name, self.text(&value)))
                .collect(),
            ..coded
        };
        Reason {
            text: self.text(&reason.text),
            coded: reason.coded.into_iter().map(named).collect(),
        }
    }

    /// Returns the name of the object with an identifier; `None` if the text is no identifier of an object.
    pub(crate) fn of(&self, id: &str) -> Option<String> {
        self.name(id)
    }

    /// Returns a JSON value in whose texts names stand for identifiers.
    pub(crate) fn value(&self, value: serde_json::Value) -> serde_json::Value {
        use serde_json::Value;
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(values) => values.into_iter().map(|value| self.value(value)).collect(),
            Value::Object(fields) => fields
                .into_iter()
                .map(|(name, value)| (self.text(&name), self.value(value)))
                .collect(),
            other => other,
        }
    }

    /// Returns a text in which names stand for identifiers.
    fn text(&self, text: &str) -> String {
        let is_part = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | ':');
        let mut named = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(is_part) {
            let (before, from) = rest.split_at(start);
            let end = from.find(|char| !is_part(char)).unwrap_or(from.len());
            let (word, after) = from.split_at(end);
            // A colon at the end of a word belongs to the sentence.
            let bare = word.trim_end_matches(':');
            named.push_str(before);
            match self.name(bare) {
                Some(name) => {
                    named.push_str(&name);
                    named.push_str(word.get(bare.len()..).unwrap_or_default());
                }
                None => named.push_str(word),
            }
            rest = after;
        }
        named.push_str(rest);
        named
    }

    /// Returns the name of the object with an identifier; `None` if the word is no identifier of an object.
    fn name(&self, word: &str) -> Option<String> {
        let exchange = &self.0.snapshot.exchange;
        let name = if let Ok(port) = word.parse::<PortId>() {
            let switch = exchange.switches.get(&port.switch)?;
            format!("port {} of {}", port.port.raw(), switch.name)
        } else {
            let id = word.parse::<ObjectId>().ok()?;
            exchange.object(id)?;
            self.object(exchange, id)?
        };
        Some(if self.0.actor.is_operator() {
            format!("{name} ({word})")
        } else {
            name
        })
    }

    fn object(&self, exchange: &Exchange, id: ObjectId) -> Option<String> {
        let quoted = |name: &str| format!("\"{name}\"");
        let own = |name: String, other: &str| {
            if self.0.may_read(id) {
                name
            } else {
                other.to_owned()
            }
        };
        let account = |id| {
            let name = exchange.accounts.get(&id).map(|account| account.name.clone());
            name.filter(|_| self.0.knows(id))
                .or_else(|| self.0.asns_as_name(id))
        };
        Some(match id {
            ObjectId::Account(id) => account(id).unwrap_or_else(|| "another account".to_owned()),
            ObjectId::User(id) => own(exchange.users.get(&id)?.name.clone(), "another user"),
            ObjectId::Connection(id) => own(
                quoted(&exchange.connections.get(&id)?.name),
                "the connection of the other side",
            ),
            ObjectId::Service(id) => own(quoted(&exchange.services.get(&id)?.name), "another service"),
            ObjectId::Config(id) => {
                let end = exchange.configs.get(&id)?;
                let service = exchange.services.get(&end.service)?;
                let service = quoted(&service.name);
                match account(end.account) {
                    Some(account) if self.0.may_read(id) => format!("the end of {account} in {service}"),
                    _ if self.0.may_read(end.service) => format!("another end of {service}"),
                    _ => "another end".to_owned(),
                }
            }
            ObjectId::Mac(id) => own(exchange.macs.get(&id)?.address.to_string(), "another MAC address"),
            ObjectId::Ip(id) => own(exchange.ips.get(&id)?.address.to_string(), "another IP address"),
            ObjectId::Filter(id) => own(
                format!(
                    "the filter of packets to {}",
                    exchange.filters.get(&id)?.matching.destination
                ),
                "another filter",
            ),
            ObjectId::Site(id) => exchange.sites.get(&id)?.name.clone(),
            ObjectId::Switch(id) => exchange.switches.get(&id)?.name.clone(),
            ObjectId::Trunk(id) => quoted(&exchange.trunks.get(&id)?.name),
            ObjectId::Policy(id) => quoted(&exchange.policies.get(&id)?.name),
            _ => return None,
        })
    }
}
