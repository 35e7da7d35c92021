//! Structs of sums that are added to and taken from field by field.

macro_rules! sums {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$of])* pub $field: usize,)* }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, more: Self) {
                $(self.$field += more.$field;)*
            }
        }

        impl std::ops::SubAssign for $name {
            fn sub_assign(&mut self, less: Self) {
                $(self.$field -= less.$field;)*
            }
        }
    };
}

pub(crate) use sums;
