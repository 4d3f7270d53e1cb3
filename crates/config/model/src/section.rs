//! `section!`: one definition of a table of the configuration. The macro derives from it the struct, decoder, encoder,
//! defaults, diff, documentation and OpenAPI schema.

/// Declares a section.
///
/// ```text
/// section! {
///     /// Description of the table.
///     pub struct Port (live, by name) {
///         required {
///             /// Description of the key.
///             pub name: PortName,
///         }
///         optional {
///             /// Description of the key.
///             pub mtu: Mtu = Mtu::ETHERNET,
///             /// A key whose name differs from the name of the field.
///             pub ports as "port": Vec<Port> = Vec::new(),
///         }
///     }
/// }
/// ```
/// `(restart)` declares that changes take effect at the next start. `by KEY` names the key that identifies an item of
/// a list; `by KEY or short` also accepts the bare value of that key in place of the table; `by KEY in order` makes the
/// order of a list a part of its value.
macro_rules! section {
    (
        $(#[doc = $section_doc:literal])*
        pub struct $Name:ident ($applies:ident $(, by $identity:ident $(or $short:ident)? $(in $order:ident)?)?) {
            required { $( $(#[doc = $rdoc:literal])+ pub $rfield:ident $(as $rkey:literal)? : $rty:ty, )* }
            optional { $( $(#[doc = $odoc:literal])+ pub $ofield:ident $(as $okey:literal)? : $oty:ty = $default:expr, )* }
        }
    ) => {
        $(#[doc = $section_doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $Name {
            $( $(#[doc = $rdoc])+ pub $rfield: $rty, )*
            $( $(#[doc = $odoc])+ pub $ofield: $oty, )*
        }

        impl $Name {
            /// Returns the section with the given required keys and the defaults of all other keys.
            #[allow(clippy::new_without_default, reason = "a section without required keys has a Default of its own")]
            pub fn new($( $rfield: $rty ),*) -> $Name {
                $Name { $( $rfield, )* $( $ofield: $default, )* }
            }

            /// Returns the schema of the section: its keys with types, defaults and documentation.
            pub fn section() -> $crate::schema::Section {
                use $crate::decode::{Detail, Field};
                $crate::schema::Section {
                    name: stringify!($Name),
                    doc: &[$($section_doc),*],
                    keys: vec![
                        $( $crate::schema::Key {
                            name: $crate::section::key!($rfield $($rkey)?),
                            doc: &[$($rdoc),+],
                            shape: <$rty as Field>::shape(),
                            required: true,
                            default: None,
                        }, )*
                        $( $crate::schema::Key {
                            name: $crate::section::key!($ofield $($okey)?),
                            doc: &[$($odoc),+],
                            shape: <$oty as Field>::shape(),
                            required: false,
                            default: {
                                let value: $oty = $default;
                                value.encode(Detail::Sparse).map(|node| node.to_json())
                            },
                        }, )*
                    ],
                    identity: $crate::section::some!($( stringify!($identity) )?),
                    shorthand: $crate::section::some!($( $( { let _ = stringify!($short); stringify!($identity) } )? )?),
                    applies: $crate::section::applies!($applies),
                }
            }
        }

        impl $crate::decode::Field for $Name {
            fn shape() -> $crate::schema::Shape {
                $crate::schema::Shape::Table($Name::section)
            }

            fn decode(decoder: &mut $crate::decode::Decoder, node: &$crate::node::Node) -> Option<$Name> {
                $( $(
                    let _ = stringify!($short);
                    if let $crate::node::Value::Text(_) = &node.value {
                        let mut table = $crate::node::Table::default();
                        table.push(stringify!($identity), node.clone());
                        let longer = $crate::node::Node { value: $crate::node::Value::Table(table), span: node.span.clone() };
                        return <$Name as $crate::decode::Field>::decode(decoder, &longer);
                    }
                )? )?
                let $crate::node::Value::Table(table) = &node.value else {
                    decoder.wrong_type(node, &<$Name as $crate::decode::Field>::shape());
                    return None;
                };
                decoder.unknown_keys(table, &[
                    $( $crate::section::key!($rfield $($rkey)?), )*
                    $( $crate::section::key!($ofield $($okey)?), )*
                ]);
                $( let $rfield = decoder.required::<$rty>(table, $crate::section::key!($rfield $($rkey)?)); )*
                $( let $ofield = decoder.optional::<$oty>(table, $crate::section::key!($ofield $($okey)?), || $default); )*
                Some($Name { $( $rfield: $rfield?, )* $( $ofield, )* })
            }

            fn encode(&self, detail: $crate::decode::Detail) -> Option<$crate::node::Node> {
                use $crate::decode::{Detail, Field};
                let mut table = $crate::node::Table::default();
                $(
                    if let Some(node) = Field::encode(&self.$rfield, detail) {
                        table.push($crate::section::key!($rfield $($rkey)?), node);
                    }
                )*
                $(
                    let is_default = || { let default: $oty = $default; self.$ofield == default };
                    if detail == Detail::Full || !is_default() {
                        if let Some(node) = Field::encode(&self.$ofield, detail) {
                            table.push($crate::section::key!($ofield $($okey)?), node);
                        }
                    }
                )*
                $( $(
                    let _ = stringify!($short);
                    table.inline = true;
                    if detail == Detail::Sparse && table.entries.len() == 1 {
                        return Field::encode(&self.$identity, detail);
                    }
                )? )?
                Some($crate::node::Value::Table(table).into())
            }

            fn identity(&self) -> Option<String> {
                $crate::section::some!($( self.$identity.to_string() )?)
            }

            fn is_ordered() -> bool {
                $crate::section::some!($( $( stringify!($order) )? )?) == Some("order")
            }

            fn diff(&self, old: &$Name, path: &str, _: $crate::schema::TakesEffect, out: &mut Vec<$crate::change::Change>) {
                let applies = $crate::section::applies!($applies);
                $( $crate::decode::Field::diff(
                    &self.$rfield, &old.$rfield,
                    &format!("{path}/{}", $crate::section::key!($rfield $($rkey)?)), applies, out); )*
                $( $crate::decode::Field::diff(
                    &self.$ofield, &old.$ofield,
                    &format!("{path}/{}", $crate::section::key!($ofield $($okey)?)), applies, out); )*
            }
        }

        $crate::section::interchange!($Name);
    };
}
pub(crate) use section;

/// Expands to the key of a field: the given key, or else the name of the field.
macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}
pub(crate) use key;

/// Expands to `Some` of the given tokens, or to `None` if there are none.
macro_rules! some {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}
pub(crate) use some;

macro_rules! applies {
    (live) => {
        $crate::schema::TakesEffect::Live
    };
    (restart) => {
        $crate::schema::TakesEffect::Restart
    };
}
pub(crate) use applies;

/// Implements `Serialize` (full form, any data format) and, with the feature `openapi`, the schema.
macro_rules! interchange {
    ($Name:ident) => {
        impl serde::Serialize for $Name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $crate::decode::Field::encode(self, $crate::decode::Detail::Full).serialize(serializer)
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::PartialSchema for $Name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                $crate::openapi::schema(&$Name::section())
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::ToSchema for $Name {
            fn name() -> std::borrow::Cow<'static, str> {
                $crate::openapi::schema_name(&$Name::section()).into()
            }

            fn schemas(
                schemas: &mut Vec<(
                    String,
                    utoipa::openapi::RefOr<utoipa::openapi::schema::Schema>,
                )>,
            ) {
                $crate::openapi::nested(&$Name::section(), schemas);
            }
        }
    };
}
pub(crate) use interchange;

/// Implements `Deserialize` for a part of a configuration. Its keys are checked; consistency with the other parts is
/// checked only by [`Config::validate`](crate::Config::validate).
macro_rules! deserialize {
    ($($Name:ident),*) => {$(
        impl<'de> serde::Deserialize<'de> for $Name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$Name, D::Error> {
                let json = serde_json::Value::deserialize(deserializer)?;
                $crate::text::section_from_json(&json).map_err(serde::de::Error::custom)
            }
        }
    )*};
}
pub(crate) use deserialize;
