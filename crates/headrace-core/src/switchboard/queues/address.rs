//! What topics and filters below `$queue/` mean.

use std::borrow::Cow;

use crate::mqtt::reason;

/// What topics of queues begin with; the name of a queue follows.
pub const BELOW: &str = "$queue/";

/// The queue of what has died in a queue has its name and this behind it.
pub const DEAD_LETTERS: &str = ".dlq";

/// The level below a queue's name that stands for that queue.
const DEAD_LEVEL: &str = "$dlq";

/// What may be said behind a question mark, once each; user properties say it by these names.
const OPTIONS: [&str; 3] = ["consumer-group", "prefetch", "settle"];

/// How a delivery ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Done with.
    Ack,
    /// It has failed, and comes again.
    Nack,
    /// It is not to come again.
    Reject,
    /// It takes longer.
    Extend,
}

impl Verb {
    const ALL: [Self; 4] = [Self::Ack, Self::Nack, Self::Reject, Self::Extend];

    /// As people write it, behind a `$` in a topic.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Nack => "nack",
            Self::Reject => "reject",
            Self::Extend => "extend",
        }
    }

    /// Of a name; None where there is none of it.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.name() == name)
    }
}

/// Where a publish below `$queue/` goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address<'a> {
    /// Into a queue.
    Enqueue(&'a str),
    /// To settle what a queue has delivered; levels between the name and the verb say nothing.
    Settle(&'a str, Verb),
    /// Nowhere: names that begin with `$` are the broker's.
    Nowhere,
}

impl<'a> Address<'a> {
    /// Of a topic; None where it is not below `$queue`.
    pub fn of(topic: &'a str) -> Option<Self> {
        if topic == &BELOW[..BELOW.len() - 1] {
            return Some(Self::Nowhere);
        }
        let (queue, below) = split(topic.strip_prefix(BELOW)?);
        let (between, last) = below.rsplit_once('/').unwrap_or(("", below));
        Some(match last.strip_prefix('$').and_then(Verb::of) {
            _ if queue.is_empty() => Self::Nowhere,
            Some(verb) if !has_reserved(between) => Self::Settle(queue, verb),
            None if !has_reserved(below) => Self::Enqueue(queue),
            _ => Self::Nowhere,
        })
    }
}

/// Why a filter below `$queue/` is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwanted {
    /// It names no queue.
    Unnamed,
    /// A level begins with `$`.
    Reserved,
    /// Its options are not known, or stand there twice, or elsewhere.
    Options,
}

impl Unwanted {
    /// What SUBACK says.
    pub const fn told(self) -> (u8, &'static str) {
        match self {
            Self::Unnamed => (reason::TOPIC_FILTER_INVALID, "name the queue: $queue/NAME"),
            Self::Reserved => (
                reason::TOPIC_FILTER_INVALID,
                "levels that begin with $ are the broker's, and $dlq stands behind the name",
            ),
            Self::Options => (
                reason::IMPLEMENTATION_SPECIFIC,
                "options stand behind the name, once each: $queue/NAME?group=G&prefetch=N&settle=S",
            ),
        }
    }
}

/// Who consumes what of a queue, as a filter says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The queue's name.
    pub queue: Cow<'a, str>,
    /// What messages are matched with that is behind the queue's name; all without one.
    pub filter: Option<&'a str>,
    /// Pairs behind a question mark, for clients without user properties.
    options: &'a str,
}

impl<'a> Wanted<'a> {
    /// Of a filter; None where it is not about queues, an error where it is not served.
    pub fn of(filter: &'a str) -> Option<Result<Self, Unwanted>> {
        match filter.strip_prefix(BELOW) {
            Some(rest) => Some(Self::of_rest(rest)),
            None => (filter == &BELOW[..BELOW.len() - 1]).then_some(Err(Unwanted::Unnamed)),
        }
    }

    fn of_rest(rest: &'a str) -> Result<Self, Unwanted> {
        let (first, mut filter) = split(rest);
        let (name, options) = match first.split_once('?') {
            Some((name, options)) => (name, Some(options)),
            None => (first, None),
        };
        if name.is_empty() || name.contains(['+', '#']) {
            return Err(Unwanted::Unnamed);
        }
        if !options.is_none_or(are_options) || has_options(filter) {
            return Err(Unwanted::Options);
        }
        let mut queue = Cow::Borrowed(name);
        let (level, behind) = split(filter);
        if level == DEAD_LEVEL {
            queue = Cow::Owned([name, DEAD_LETTERS].concat());
            filter = behind;
        }
        if has_reserved(filter) {
            return Err(Unwanted::Reserved);
        }
        Ok(Self {
            queue,
            filter: (!filter.is_empty() && filter != "#").then_some(filter),
            options: options.unwrap_or_default(),
        })
    }

    /// The filter that rules of access are asked about: of topics below the queue's name, without
    /// options.
    pub fn reached(&self) -> String {
        [BELOW, &self.queue, "/", self.filter.unwrap_or("#")].concat()
    }

    /// The value of an option: of the filter, or of the packet's user properties.
    pub fn option<'b>(&self, name: &str, properties: &[(&'b str, &'b str)]) -> Option<&'b str>
    where
        'a: 'b,
    {
        let pairs = self.options.split('&');
        let pairs = pairs.filter_map(|pair| pair.split_once('='));
        let mut own = pairs.filter(|(key, _)| option_of(key) == Some(name));
        let mut told = properties.iter().filter(|(key, _)| *key == name);
        own.next()
            .or_else(|| told.next().copied())
            .map(|(_, value)| value)
    }
}

/// The first level, and what is behind it.
fn split(path: &str) -> (&str, &str) {
    path.split_once('/').unwrap_or((path, ""))
}

/// Whether a level begins with `$`.
fn has_reserved(levels: &str) -> bool {
    levels.starts_with('$') || levels.contains("/$")
}

/// The whole name of an option.
fn option_of(key: &str) -> Option<&'static str> {
    let name = if key == "group" { OPTIONS[0] } else { key };
    OPTIONS.into_iter().find(|each| *each == name)
}

/// Whether a text is of options, once each.
fn are_options(text: &str) -> bool {
    let mut left = OPTIONS.to_vec();
    text.split('&').all(|pair| {
        let option = pair
            .split_once('=')
            .filter(|(_, value)| !value.contains('?'))
            .and_then(|(key, _)| option_of(key));
        let at = left.iter().position(|each| Some(*each) == option);
        at.map(|at| left.swap_remove(at)).is_some()
    })
}

/// Whether options stand behind a level, where they would be taken for a part of it.
fn has_options(levels: &str) -> bool {
    let mut behind = levels.split('?').skip(1);
    behind.any(|text| {
        let pair = text.split_once('=');
        pair.is_some_and(|(key, _)| option_of(key).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_go_into_queues_or_settle() {
        for (topic, expected) in [
            ("$queue/jobs", Some(Address::Enqueue("jobs"))),
            ("$queue/jobs/eu/3", Some(Address::Enqueue("jobs"))),
            (
                "$queue/jobs/eu/3/$ack",
                Some(Address::Settle("jobs", Verb::Ack)),
            ),
            ("$queue/jobs/a$b/$", Some(Address::Nowhere)),
            ("$queue/jobs/a$b", Some(Address::Enqueue("jobs"))),
            ("$queue/jobs/eu/$akc", Some(Address::Nowhere)),
            ("$queue/jobs/$eu/$ack", Some(Address::Nowhere)),
            ("$queue//$ack", Some(Address::Nowhere)),
            ("$queue/jobs/$ack", Some(Address::Settle("jobs", Verb::Ack))),
            (
                "$queue/jobs/$nack",
                Some(Address::Settle("jobs", Verb::Nack)),
            ),
            (
                "$queue/jobs/$reject",
                Some(Address::Settle("jobs", Verb::Reject)),
            ),
            (
                "$queue/jobs/$extend",
                Some(Address::Settle("jobs", Verb::Extend)),
            ),
            ("$queue/jobs/$dlq", Some(Address::Nowhere)),
            ("$queue/jobs/$ack/x", Some(Address::Nowhere)),
            ("$queue/", Some(Address::Nowhere)),
            ("$queue", Some(Address::Nowhere)),
            ("$queues/jobs", None),
            ("a/$queue/jobs", None),
        ] {
            assert_eq!(Address::of(topic), expected, "{topic}");
        }
    }

    #[test]
    fn filters_name_a_queue_and_may_have_options() {
        let of = |filter| {
            Wanted::of(filter).map(|wanted| {
                wanted.map(|wanted| (wanted.queue.into_owned(), wanted.filter.map(str::to_owned)))
            })
        };
        let named = |queue: &str, filter: Option<&str>| {
            Some(Ok((queue.to_owned(), filter.map(str::to_owned))))
        };
        assert_eq!(of("$queue/jobs"), named("jobs", None));
        assert_eq!(of("$queue/jobs/#"), named("jobs", None));
        assert_eq!(of("$queue/jobs/eu/+"), named("jobs", Some("eu/+")));
        assert_eq!(of("$queue/jobs?group=g/eu/+"), named("jobs", Some("eu/+")));
        assert_eq!(of("$queue/jobs/$dlq"), named("jobs.dlq", None));
        assert_eq!(of("$queue/jobs/$dlq/eu"), named("jobs.dlq", Some("eu")));
        assert_eq!(of("$queue/jobs/what?"), named("jobs", Some("what?")));
        for (why, wrong) in [
            (Unwanted::Unnamed, "$queue"),
            (Unwanted::Unnamed, "$queue/"),
            (Unwanted::Unnamed, "$queue/+"),
            (Unwanted::Unnamed, "$queue/#"),
            (Unwanted::Unnamed, "$queue/?group=g"),
            (Unwanted::Reserved, "$queue/jobs/$ack"),
            (Unwanted::Reserved, "$queue/jobs/$foo/#"),
            (Unwanted::Reserved, "$queue/jobs/eu/$dlq"),
            (Unwanted::Reserved, "$queue/jobs/$dlq/$dlq"),
            (Unwanted::Options, "$queue/jobs?gruop=work"),
            (Unwanted::Options, "$queue/jobs?group"),
            (Unwanted::Options, "$queue/jobs?"),
            (Unwanted::Options, "$queue/jobs?group=a&group=b"),
            (Unwanted::Options, "$queue/jobs?group=a&consumer-group=b"),
            (Unwanted::Options, "$queue/jobs?group=g?prefetch=5"),
            (Unwanted::Options, "$queue/jobs/x?group=g"),
            (Unwanted::Options, "$queue/jobs/$dlq?group=g"),
        ] {
            assert_eq!(of(wrong), Some(Err(why)), "{wrong}");
        }
        assert_eq!(of("$queues/jobs"), None);
        let wanted = Wanted::of("$queue/jobs?group=g&prefetch=5")
            .unwrap()
            .unwrap();
        let told = [("consumer-group", "h"), ("settle", "puback")];
        assert_eq!(wanted.option("consumer-group", &told), Some("g"));
        assert_eq!(wanted.option("prefetch", &told), Some("5"));
        assert_eq!(wanted.option("settle", &told), Some("puback"));
        assert_eq!(wanted.option("start-from", &told), None);
    }
}
