//! Bridges of the database beside the objects of other origins. The model refuses a configuration as a whole; here the row
//! at fault is taken out, with the reason, until the rest holds.

use millrace_model::{self as model, Config, ConfigError, ConfigErrors, Step};

use crate::place::Translation;

/// The number of rows that one cycle takes out at most. Each needs a check of the whole configuration.
const ROUNDS_MAX: usize = 1000;

/// Returns `others` with the bridges of the translation. A bridge of `others` with the same name belongs to somebody else:
/// `taken` returns the refusal for its row.
///
/// # Errors
/// [`ConfigErrors`] if the fault is in no row of the database. The caller keeps what it had.
pub fn settle(
    others: &Config,
    translation: &mut Translation,
    taken: impl Fn(&str) -> String,
) -> Result<Config, ConfigErrors> {
    for bridge in &others.bridges {
        translation.refuse_bridge(bridge.name.as_str(), &taken(bridge.name.as_str()));
    }
    translation.distinguish(others);
    let mut rounds = 0;
    loop {
        let mut config = others.clone();
        config.bridges.extend(translation.bridges.iter().cloned());
        let Err(errors) = config.validate() else {
            return Ok(config);
        };
        rounds += 1;
        let first_own = others.bridges.len();
        let is_mended = rounds <= ROUNDS_MAX
            // Indices are right for the first error only, unless it takes nothing out before the next ones.
            && errors.iter().any(|error| mend(&config, first_own, translation, error));
        if !is_mended {
            return Err(errors);
        }
    }
}

/// Takes the row at fault out. Returns false if the error is in none.
fn mend(config: &Config, first_own: usize, translation: &mut Translation, error: &ConfigError) -> bool {
    let [Step::Key(list), Step::Index(index), rest @ ..] = error.path.0.as_slice() else {
        return false;
    };
    if list != "bridge" || *index < first_own {
        return false;
    }
    let Some(bridge) = config.bridges.get(*index) else {
        return false;
    };
    let (name, reason) = (bridge.name.as_str(), error.problem.to_string());
    match rest {
        [Step::Key(key), Step::Index(at), ..] if key == "port" => match bridge.ports.get(*at) {
            Some(port) => translation.refuse_port(name, port.name.as_str(), &reason),
            None => return false,
        },
        [Step::Key(key), Step::Index(at), inner @ ..] if key == "lag" => {
            let Some(lag) = bridge.lags.get(*at) else {
                return false;
            };
            match inner {
                [Step::Key(key), Step::Index(at), ..] if key == "member" => match lag.members.get(*at) {
                    Some(member) => {
                        translation.refuse_member(name, lag.name.as_str(), member.name.as_str(), &reason);
                    }
                    None => return false,
                },
                _ => translation.refuse_port(name, lag.name.as_str(), &reason),
            }
        }
        [Step::Key(key), Step::Index(at), ..] if key == "controllers" => match bridge.controllers.get(*at) {
            Some(controller) => {
                let target = controller.target.to_string();
                drop_from(translation, name, |bridge| drop(bridge.controllers.remove(*at)));
                translation.refuse_controller(name, &target, &reason);
            }
            None => return false,
        },
        [Step::Key(key), Step::Index(at), ..] if key == "listen" => match bridge.listen.get(*at) {
            Some(listener) => {
                let target = listener.target.to_string();
                drop_from(translation, name, |bridge| drop(bridge.listen.remove(*at)));
                translation.refuse_controller(name, &target, &reason);
            }
            None => return false,
        },
        [Step::Key(key), Step::Index(at), inner @ ..] if key == "mirror" => {
            let Some(mirror) = bridge.mirrors.get(*at) else {
                return false;
            };
            let selected = match inner {
                [Step::Key(key), Step::Index(at), ..] if key == "select_received" => {
                    mirror.select_received.get(*at)
                }
                [Step::Key(key), Step::Index(at), ..] if key == "select_sent" => mirror.select_sent.get(*at),
                _ => None,
            };
            match selected {
                Some(port) => translation.refuse_selection(name, mirror.name.as_str(), port, &reason),
                None => translation.refuse_mirror(name, mirror.name.as_str(), &reason),
            }
        }
        _ => translation.refuse_bridge(name, &reason),
    }
    true
}

fn drop_from(translation: &mut Translation, name: &str, change: impl Fn(&mut model::Bridge)) {
    translation
        .bridges
        .iter_mut()
        .filter(|bridge| bridge.name.as_str() == name)
        .for_each(change);
}
