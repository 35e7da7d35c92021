//! Who subscribes to one filter. Most filters have one subscriber, which then stands in its place
//! without memory of its own.

use std::collections::BTreeMap;
use std::mem;
use std::ops::Range;

/// So many stand beside each other.
const FEW_MAX: usize = 8;

/// Subscribers with a value each, in order.
///
/// The fewer cache lines a match touches the faster it is, so a tree is made for many subscribers
/// only, and stands elsewhere.
#[derive(Clone, Debug, Default)]
pub(super) enum Subscribers<K, T> {
    #[default]
    None,
    One(K, T),
    /// Two to [`FEW_MAX`].
    Few(Box<[(K, T)]>),
    /// More, or what is left of them.
    #[allow(clippy::box_collection, reason = "the map itself is three words")]
    Many(Box<BTreeMap<K, T>>),
}

impl<K: Ord, T> Subscribers<K, T> {
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    /// So many, in order.
    fn of(mut few: Vec<(K, T)>) -> Self {
        match few.len() {
            0 => Self::None,
            1 => few
                .pop()
                .map_or(Self::None, |(known, value)| Self::One(known, value)),
            2..=FEW_MAX => Self::Few(few.into()),
            _ => Self::Many(Box::new(few.into_iter().collect())),
        }
    }

    /// At most [`FEW_MAX`], in order.
    fn take_few(&mut self) -> Vec<(K, T)> {
        match mem::take(self) {
            Self::None => Vec::new(),
            Self::One(known, value) => vec![(known, value)],
            Self::Few(few) => few.into(),
            Self::Many(all) => all.into_iter().collect(),
        }
    }

    /// Adds or replaces; the value before.
    pub fn insert(&mut self, subscriber: K, value: T) -> Option<T> {
        let at = match self {
            Self::None => 0,
            Self::One(known, before) if *known == subscriber => {
                return Some(mem::replace(before, value));
            }
            Self::One(known, _) => usize::from(*known < subscriber),
            Self::Few(few) => match few.binary_search_by(|(known, _)| known.cmp(&subscriber)) {
                Ok(at) => return Some(mem::replace(&mut few[at].1, value)),
                Err(at) => at,
            },
            Self::Many(all) => return all.insert(subscriber, value),
        };
        let mut few = self.take_few();
        few.insert(at, (subscriber, value));
        *self = Self::of(few);
        None
    }

    /// Removes; the value that there was.
    pub fn remove(&mut self, subscriber: &K) -> Option<T> {
        let at = match self {
            Self::None => return None,
            Self::One(known, _) => (known == subscriber).then_some(0)?,
            Self::Few(few) => few
                .binary_search_by(|(known, _)| known.cmp(subscriber))
                .ok()?,
            Self::Many(all) => {
                let value = all.remove(subscriber);
                if all.len() <= FEW_MAX / 2 {
                    *self = Self::of(self.take_few());
                }
                return value;
            }
        };
        let mut few = self.take_few();
        let (_, value) = few.remove(at);
        *self = Self::of(few);
        Some(value)
    }

    #[inline]
    pub fn visit(&self, visit: &mut impl FnMut(&K, &T)) {
        match self {
            Self::None => {}
            Self::One(subscriber, value) => visit(subscriber, value),
            Self::Few(few) => few.iter().for_each(|(each, value)| visit(each, value)),
            Self::Many(all) => all.iter().for_each(|(each, value)| visit(each, value)),
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
            Subscribers::Few(few) => {
                self.is_over = !few.iter().all(|(each, value)| (self.goes_on)(each, value));
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
            Subscribers::Few(few) => {
                for (subscriber, value) in few {
                    if self.range.contains(subscriber) {
                        (self.visit)(subscriber, value);
                    }
                }
            }
            Subscribers::One(subscriber, value) if self.range.contains(subscriber) => {
                (self.visit)(subscriber, value);
            }
            Subscribers::One(..) | Subscribers::None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Each, Subscribers, Visit, While, Within, FEW_MAX};
    use crate::testing::Random;

    /// However many there are, and however they came and went.
    #[test]
    fn subscribers_are_a_map_in_order() {
        let mut random = Random::new(5);
        let (mut subscribers, mut model) = (Subscribers::default(), BTreeMap::new());
        let mut kinds = [0; 4];
        for round in 0..20_000_u64 {
            let most = [1, 3, 2 * FEW_MAX, 6 * FEW_MAX][round as usize / 200 % 4];
            let key = random.below(most) as u32;
            if random.below(2) == 0 || model.len() > most {
                let key = *model
                    .keys()
                    .nth(random.below(model.len().max(1)))
                    .unwrap_or(&key);
                assert_eq!(subscribers.remove(&key), model.remove(&key));
            } else {
                assert_eq!(subscribers.insert(key, round), model.insert(key, round));
            }
            assert_eq!(subscribers.is_empty(), model.is_empty());
            let all: Vec<_> = model.iter().map(|(key, value)| (*key, *value)).collect();
            let mut seen = Vec::new();
            Each(&mut |key: &u32, value: &u64| seen.push((*key, *value))).visit(&subscribers);
            assert_eq!(seen, all);
            seen.clear();
            let range = key / 2..key + 1;
            let visit = &mut |key: &u32, value: &u64| seen.push((*key, *value));
            Within {
                range: range.clone(),
                visit,
            }
            .visit(&subscribers);
            assert!(seen
                .iter()
                .eq(all.iter().filter(|(key, _)| range.contains(key))));
            seen.clear();
            let goes_on = &mut |key: &u32, value: &u64| {
                seen.push((*key, *value));
                seen.len() < 3
            };
            While {
                goes_on,
                is_over: false,
            }
            .visit(&subscribers);
            assert_eq!(seen, all[..all.len().min(3)]);
            kinds[match subscribers {
                Subscribers::None => 0,
                Subscribers::One(..) => 1,
                Subscribers::Few(_) => 2,
                Subscribers::Many(_) => 3,
            }] += 1;
        }
        assert!(kinds.into_iter().all(|times| times > 100), "{kinds:?}");
    }
}
