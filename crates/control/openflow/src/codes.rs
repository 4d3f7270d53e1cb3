//! Macros that declare an enumeration or a set of flags of the specification, as one list of names, numbers
//! and meanings.

/// Declares an enumeration whose values have the specification's numbers.
macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident($raw:ty) { $( $(#[$vdoc:meta])* $variant:ident = $value:literal $text:literal, )* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name {
            $( $(#[$vdoc])* $variant, )*
        }

        impl $name {
            /// Every value, in the order of the specification.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// Returns the value with this number on the wire.
            #[inline]
            pub const fn from_raw(raw: $raw) -> Option<$name> {
                match raw {
                    $( $value => Some($name::$variant), )*
                    _ => None,
                }
            }

            /// Returns the number on the wire.
            #[inline]
            pub const fn raw(self) -> $raw {
                match self {
                    $( $name::$variant => $value, )*
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(match self {
                    $( $name::$variant => $text, )*
                })
            }
        }
    };
}

/// Declares a set of flags in one word. Only flags of the specification are valid.
macro_rules! wire_flags {
    ($(#[$doc:meta])* $name:ident($raw:ty) { $( $(#[$fdoc:meta])* $flag:ident = $value:literal $text:literal, )* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name($raw);

        impl $name {
            $( $(#[$fdoc])* pub const $flag: $name = $name($value); )*
            /// Every flag.
            pub const ALL: $name = $name($($value)|*);
            /// No flag.
            pub const NONE: $name = $name(0);

            /// Returns the flags in `raw`; `None` if the specification does not define all of them.
            #[inline]
            pub const fn from_raw(raw: $raw) -> Option<$name> {
                if raw & !Self::ALL.0 == 0 { Some($name(raw)) } else { None }
            }

            /// Returns the flags in `raw` that the specification defines.
            #[inline]
            pub const fn from_raw_truncated(raw: $raw) -> $name {
                $name(raw & Self::ALL.0)
            }

            /// Returns the value of the word on the wire.
            #[inline]
            pub const fn raw(self) -> $raw {
                self.0
            }

            /// Returns true if all of `flags` are set.
            #[inline]
            pub const fn contains(self, flags: $name) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// Returns the flags that are in `self`, in `other`, or in both.
            #[must_use]
            pub const fn union(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            /// Returns the flags that are not in `other`.
            #[must_use]
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }
        }

        impl core::ops::BitOr for $name {
            type Output = $name;

            fn bitor(self, other: $name) -> $name {
                self.union(other)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let mut separator = "";
                $(
                    if self.contains($name::$flag) {
                        write!(f, "{separator}{}", $text)?;
                        separator = "|";
                    }
                )*
                if separator.is_empty() { f.write_str("0") } else { Ok(()) }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}

pub(crate) use {wire_enum, wire_flags};
