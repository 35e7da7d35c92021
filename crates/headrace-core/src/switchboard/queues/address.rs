//! What topics and filters below `$queue/` mean.

use std::borrow::Cow;

/// What topics of queues begin with; the name of a queue follows.
pub const BELOW: &str = "$queue/";

/// The queue of what has died in a queue has its name and this behind it.
pub const DEAD_LETTERS: &str = ".dlq";

/// The level below a queue's name that stands for that queue.
const DEAD_LEVEL: &str = "$dlq";

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
    /// To settle what a queue has delivered.
    Settle(&'a str, Verb),
    /// Nowhere: names that begin with `$` are the broker's.
    Nowhere,
}

impl<'a> Address<'a> {
    /// Of a topic; None where it is not below `$queue/`.
    pub fn of(topic: &'a str) -> Option<Self> {
        let (queue, rest) = split(topic.strip_prefix(BELOW)?);
        Some(match rest.strip_prefix('$') {
            Some(verb) => Verb::of(verb).map_or(Self::Nowhere, |verb| Self::Settle(queue, verb)),
            None if queue.is_empty() => Self::Nowhere,
            None => Self::Enqueue(queue),
        })
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
    /// Of a filter; None where it is not about queues, an error where it names none.
    pub fn of(filter: &'a str) -> Option<Result<Self, ()>> {
        let Some(rest) = filter.strip_prefix(BELOW) else {
            return (filter == &BELOW[..BELOW.len() - 1]).then_some(Err(()));
        };
        let (first, mut filter) = split(rest);
        let (name, options) = first.split_once('?').unwrap_or((first, ""));
        if name.is_empty() || name.contains(['+', '#']) {
            return Some(Err(()));
        }
        let mut queue = Cow::Borrowed(name);
        let (level, behind) = split(filter);
        if level == DEAD_LEVEL {
            queue = Cow::Owned([name, DEAD_LETTERS].concat());
            filter = behind;
        }
        Some(Ok(Self {
            queue,
            filter: (!filter.is_empty() && filter != "#").then_some(filter),
            options,
        }))
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
        let short = name.strip_prefix("consumer-").unwrap_or(name);
        let pairs = self
            .options
            .split('&')
            .filter_map(|pair| pair.split_once('='));
        let mut own = pairs.filter(|(key, _)| *key == name || *key == short);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_go_into_queues_or_settle() {
        for (topic, expected) in [
            ("$queue/jobs", Some(Address::Enqueue("jobs"))),
            ("$queue/jobs/eu/3", Some(Address::Enqueue("jobs"))),
            ("$queue/jobs/eu/$ack", Some(Address::Enqueue("jobs"))),
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
        for wrong in [
            "$queue",
            "$queue/",
            "$queue/+",
            "$queue/#",
            "$queue/?group=g",
        ] {
            assert_eq!(of(wrong), Some(Err(())), "{wrong}");
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
