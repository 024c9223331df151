//! Enums of words: what files, reports and operators call them stands in one place.

/// Makes an enum, each of its variants with its word.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $kind:ident { $($(#[$of:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $kind { $($(#[$of])* $variant,)+ }

        impl $kind {
            /// All, with their names.
            pub const ALL: &'static [(&'static str, Self)] = &[$(($word, Self::$variant),)+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl $crate::serde::Serialize for $kind {
            fn serialize<S: $crate::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }
    };
}
