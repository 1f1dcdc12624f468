//! Enums whose values have names on the command line and in plans.

/// Defines an enum whose values have names. The doc comment of a value is also its help text.
macro_rules! named {
    ($(#[$doc:meta])* $seen:vis $name:ident { $(#[doc = $help:literal] $value:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        $seen enum $name { $(#[doc = $help] $value),* }

        impl $name {
            /// The values: the name, the help and the value of each.
            $seen const ALL: &'static [(&'static str, &'static str, Self)] = &[$(($text, $help, Self::$value)),*];

            /// Returns the values with their names.
            $seen fn by_name() -> impl Iterator<Item = (&'static str, Self)> {
                Self::ALL.iter().map(|&(name, _, value)| (name, value))
            }

            /// Returns the name.
            $seen fn name(self) -> &'static str {
                Self::by_name().find(|(_, value)| *value == self).map_or("", |(name, _)| name)
            }
        }
    };
}

pub(crate) use named;
