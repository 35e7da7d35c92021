//! Who subscribes to one filter. Most filters have one subscriber, which then stands in its place
//! without memory of its own.

use std::collections::BTreeMap;
use std::ops::Range;

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

/// What a walk does with the subscribers of a filter that matches.
pub(super) trait Visit<K, T> {
    /// Looks at them.
    fn visit(&mut self, subscribers: &Subscribers<K, T>);

    /// Whether it need look at no more.
    fn is_over(&self) -> bool {
        false
    }
}

/// Looks at all.
pub(super) struct Each<'v, F>(pub &'v mut F);

impl<K: Ord, T, F: FnMut(&K, &T)> Visit<K, T> for Each<'_, F> {
    #[inline]
    fn visit(&mut self, subscribers: &Subscribers<K, T>) {
        subscribers.visit(self.0);
    }
}

/// Looks at all until it has seen enough.
pub(super) struct While<'v, F> {
    pub goes_on: &'v mut F,
    pub is_over: bool,
}

impl<K: Ord, T, F: FnMut(&K, &T) -> bool> Visit<K, T> for While<'_, F> {
    #[inline]
    fn visit(&mut self, subscribers: &Subscribers<K, T>) {
        match subscribers {
            _ if self.is_over => {}
            Subscribers::None => {}
            Subscribers::One(subscriber, value) => {
                self.is_over = !(self.goes_on)(subscriber, value);
            }
            Subscribers::Many(all) => {
                self.is_over = !all.iter().all(|(each, value)| (self.goes_on)(each, value));
            }
        }
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.is_over
    }
}

/// Looks at those of a range.
pub(super) struct Within<'v, K, F> {
    pub range: Range<K>,
    pub visit: &'v mut F,
}

impl<K: Ord + Clone, T, F: FnMut(&K, &T)> Visit<K, T> for Within<'_, K, F> {
    fn visit(&mut self, subscribers: &Subscribers<K, T>) {
        match subscribers {
            Subscribers::Many(all) => {
                for (subscriber, value) in all.range(self.range.clone()) {
                    (self.visit)(subscriber, value);
                }
            }
            Subscribers::One(subscriber, value) if self.range.contains(subscriber) => {
                (self.visit)(subscriber, value);
            }
            Subscribers::One(..) | Subscribers::None => {}
        }
    }
}
