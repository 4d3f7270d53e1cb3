//! Values of gNMI (`TypedValue`) as JSON, and back in the encoding that a client asks for.

use millrace_yang::data::value_to_ietf;
use millrace_yang::schema::{Kind, Node};
use serde_json::Value as Json;
use tonic::Status;

use crate::proto::gnmi::typed_value::Value;
use crate::proto::gnmi::{Encoding, ScalarArray, TypedValue};

/// The nesting limit of JSON that a client sends; the parser's own is 128.
const ARRAY_DEPTH_MAX: usize = 4;

/// Returns the encoding of a request.
///
/// # Errors
/// `UNIMPLEMENTED` for BYTES, ASCII and unknown ones.
pub(crate) fn encoding(number: i32) -> Result<Encoding, Status> {
    match Encoding::try_from(number) {
        Ok(encoding @ (Encoding::Json | Encoding::JsonIetf | Encoding::Proto)) => Ok(encoding),
        _ => Err(Status::unimplemented(
            "the encoding is not supported: expected JSON, JSON_IETF or PROTO",
        )),
    }
}

/// Returns the JSON of a value.
///
/// # Errors
/// `INVALID_ARGUMENT` if there is none, or it is of a kind without JSON.
pub(crate) fn json_of(value: Option<&TypedValue>) -> Result<Json, Status> {
    scalar(value, 0)
}

fn scalar(value: Option<&TypedValue>, depth: usize) -> Result<Json, Status> {
    let parsed = |bytes: &[u8]| {
        serde_json::from_slice(bytes)
            .map_err(|error| Status::invalid_argument(format!("the value is no JSON: {error}")))
    };
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringVal(text) | Value::AsciiVal(text)) => Ok(Json::from(text.as_str())),
        Some(Value::IntVal(number)) => Ok(Json::from(*number)),
        Some(Value::UintVal(number)) => Ok(Json::from(*number)),
        Some(Value::BoolVal(value)) => Ok(Json::from(*value)),
        Some(Value::JsonVal(bytes) | Value::JsonIetfVal(bytes)) => parsed(bytes),
        Some(Value::LeaflistVal(array)) if depth < ARRAY_DEPTH_MAX => array
            .element
            .iter()
            .map(|element| scalar(Some(element), depth + 1))
            .collect(),
        Some(_) => Err(Status::invalid_argument(
            "the value: expected JSON_IETF, JSON, a string, a number, a bool or a leaf-list",
        )),
        None => Err(Status::invalid_argument(
            "the value is missing: expected Update.val",
        )),
    }
}

/// Returns the value of a node of `module` in an encoding. PROTO has scalars for leaves alone, and JSON_IETF for the rest.
pub(crate) fn typed(node: &Node, value: &Json, module: &str, encoding: Encoding) -> TypedValue {
    let is_leaf = matches!(node.kind, Kind::Leaf(_) | Kind::LeafList(_));
    let value = match encoding {
        Encoding::Proto if is_leaf => plain(value),
        Encoding::Json => Value::JsonVal(value.to_string().into_bytes()),
        _ => Value::JsonIetfVal(value_to_ietf(node, value, module).to_string().into_bytes()),
    };
    TypedValue { value: Some(value) }
}

fn plain(value: &Json) -> Value {
    match value {
        Json::Bool(value) => Value::BoolVal(*value),
        Json::Number(number) => Value::UintVal(number.as_u64().unwrap_or_default()),
        Json::String(text) => Value::StringVal(text.clone()),
        Json::Array(items) => Value::LeaflistVal(ScalarArray {
            element: items
                .iter()
                .map(|item| TypedValue {
                    value: Some(plain(item)),
                })
                .collect(),
        }),
        other => Value::JsonIetfVal(other.to_string().into_bytes()),
    }
}
