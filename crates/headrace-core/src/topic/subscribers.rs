//! Who subscribes to one filter. Most filters have one subscriber, which then stands in its place
//! without memory of its own.

use std::collections::BTreeMap;

/// Subscribers with a value each, in order.
#[derive(Clone, Debug, Default)]
pub(super) enum Subscribers<K, T> {
    #[default]
    None,
    One(K, T),
    /// Two or more, or what is left of them.
    Many(BTreeMap<K, T>),
}

impl<K: Ord, T> Subscribers<K, T> {
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Adds or replaces; the value before.
    pub fn insert(&mut self, subscriber: K, value: T) -> Option<T> {
        match self {
            Self::None => *self = Self::One(subscriber, value),
            Self::One(known, before) if *known == subscriber => {
                return Some(std::mem::replace(before, value));
            }
            Self::One(..) => {
                let Self::One(known, before) = std::mem::take(self) else {
                    unreachable!("it has just been looked at");
                };
                let both = [(known, before), (subscriber, value)];
                *self = Self::Many(both.into());
            }
            Self::Many(all) => return all.insert(subscriber, value),
        }
        None
    }

    /// Removes; the value that there was.
    pub fn remove(&mut self, subscriber: &K) -> Option<T> {
        match self {
            Self::Many(all) => {
                let value = all.remove(subscriber);
                if all.is_empty() {
                    *self = Self::None;
                }
                value
            }
            Self::One(known, _) if known == subscriber => match std::mem::take(self) {
                Self::One(_, value) => Some(value),
                _ => unreachable!("it has just been looked at"),
            },
            _ => None,
        }
    }

    #[inline]
    pub fn visit(&self, visit: &mut impl FnMut(&K, &T)) {
        match self {
            Self::None => {}
            Self::One(subscriber, value) => visit(subscriber, value),
            Self::Many(all) => {
                for (subscriber, value) in all {
                    visit(subscriber, value);
                }
            }
        }
    }
}
