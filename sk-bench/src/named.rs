//! Enums whose values have names on the command line and in plans.

/// Defines an enum whose values have names. The doc comment of a value is also its help text.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $(#[doc = $help:literal] $value:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[allow(unreachable_pub, reason = "some enums are private")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $(#[doc = $help] $value),* }

        #[allow(dead_code, unreachable_pub, reason = "some enums are private and do not use all")]
        impl $name {
            /// The values: the name, the help and the value of each.
            pub const ALL: &'static [(&'static str, &'static str, Self)] = &[$(($text, $help, Self::$value)),*];

            /// Returns the values with their names.
            pub fn by_name() -> impl Iterator<Item = (&'static str, Self)> {
                Self::ALL.iter().map(|&(name, _, value)| (name, value))
            }

            /// Returns the value with this name.
            pub fn named(name: &str) -> Option<Self> {
                Self::by_name().find(|(known, _)| *known == name).map(|(_, value)| value)
            }

            /// Returns the name.
            pub fn name(self) -> &'static str {
                Self::by_name().find(|(_, value)| *value == self).map_or("", |(name, _)| name)
            }
        }
    };
}

pub(crate) use named;
