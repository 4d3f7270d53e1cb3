//! The requests Capabilities and Get of gNMI.

use millrace_yang::{MODULE, REVISION};
use tonic::Status;

use crate::VERSION;
use crate::openconfig;
use crate::path::{Absolute, to_proto, to_text};
use crate::proto::gnmi::get_request::DataType;
use crate::proto::gnmi::{
    CapabilityResponse, Encoding, GetRequest, GetResponse, ModelData, Notification, Path, Update,
};
use crate::value::{encoding, typed};
use crate::view::{Match, Selection, View};

/// The limit of the number of paths of a request.
pub(crate) const PATHS_MAX: usize = 1024;

/// Returns models, encodings and version: what works, and no more.
pub fn capabilities() -> CapabilityResponse {
    let mut supported_models = openconfig::models();
    supported_models.push(ModelData {
        name: MODULE.to_owned(),
        organization: "The Millrace authors".to_owned(),
        version: REVISION.to_owned(),
    });
    CapabilityResponse {
        supported_models,
        supported_encodings: [Encoding::JsonIetf, Encoding::Json, Encoding::Proto]
            .map(i32::from)
            .to_vec(),
        g_nmi_version: VERSION.to_owned(),
        extension: Vec::new(),
    }
}

/// Returns the values of a request, all from one snapshot. `now` is the time in nanoseconds since 1970.
///
/// # Errors
/// `INVALID_ARGUMENT` for a path that the schema does not have, `NOT_FOUND` for one without data.
pub fn get(request: &GetRequest, view: &View, now: i64) -> Result<GetResponse, Status> {
    let encoding = encoding(request.encoding)?;
    let selection = match DataType::try_from(request.r#type) {
        Ok(DataType::All) => Selection::All,
        Ok(DataType::Config) => Selection::Config,
        Ok(DataType::State | DataType::Operational) => Selection::State,
        Err(_) => {
            return Err(Status::invalid_argument(
                "type: expected ALL, CONFIG, STATE or OPERATIONAL",
            ));
        }
    };
    if request.path.len() > PATHS_MAX {
        let text = format!("the request has more than {PATHS_MAX} paths");
        return Err(Status::resource_exhausted(text));
    }
    let whole = [Path::default()];
    let paths = match request.path.is_empty() {
        true => &whole[..],
        false => &request.path[..],
    };
    let mut notification = Vec::new();
    for path in paths {
        let absolute = Absolute::of(request.prefix.as_ref(), Some(path))?;
        let found = view.select(&absolute, selection)?;
        if found.is_empty() && !absolute.has_wildcard() && !absolute.steps.is_empty() {
            return Err(Status::not_found(format!(
                "{}: there is no data",
                to_text(&absolute.steps)
            )));
        }
        let origin = origin_of(request.prefix.as_ref(), path);
        notification.push(Notification {
            timestamp: now,
            prefix: target_only(request.prefix.as_ref()),
            update: found.iter().map(|one| update(one, encoding, &origin)).collect(),
            ..Notification::default()
        });
    }
    Ok(GetResponse {
        notification,
        ..GetResponse::default()
    })
}

fn update(one: &Match, encoding: Encoding, origin: &str) -> Update {
    Update {
        path: Some(to_proto(&one.steps, origin)),
        val: Some(typed(one.node, &one.value, one.module, encoding)),
        ..Update::default()
    }
}

/// Returns the origin that a client wrote, for the paths of the response.
pub(crate) fn origin_of(prefix: Option<&Path>, path: &Path) -> String {
    match (path.origin.as_str(), prefix) {
        ("", Some(prefix)) => prefix.origin.clone(),
        (origin, _) => origin.to_owned(),
    }
}

/// Returns the prefix of a response: the target of the request, which must come back (gNMI, section 2.2.2.1).
pub(crate) fn target_only(prefix: Option<&Path>) -> Option<Path> {
    let target = prefix
        .map(|prefix| prefix.target.clone())
        .filter(|target| !target.is_empty())?;
    Some(Path {
        target,
        ..Path::default()
    })
}
