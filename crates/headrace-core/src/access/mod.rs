//! Who may do what: rules, read once, and asked about every publish, subscription and will, and
//! about streams and consumer groups by their names.
//!
//! Owns the order of rules, whom each is about, and what of topics it reaches. Must not know how
//! anybody proved who they are. The first rule that is about a client, an action and a topic
//! decides; where none is, [`Rules::no_match`] does, but whoever is let in may connect.
//!
//! A subscription is decided by the first rule that is about all that it matches; what rules before
//! that one deny of it is a hole in it, and each name is asked about as it comes.
//!
//! Invariants: a subscription without holes is allowed only where every name that it matches would
//! be; what a client chose as its name never widens a rule (a placeholder that would expand to a
//! wildcard or to several levels lets nothing through).

mod pattern;
mod subject;

use std::fmt;

pub use pattern::Reach;
use pattern::{Text, TopicPattern, Who};
use subject::Network;
pub use subject::Principal;

use crate::topic::TopicError;

/// What filters begin with that name a stream.
pub const STREAM: &str = "$stream/";

/// Rules of one node: what names each of them in two bytes per client.
pub const RULES_MAX: usize = 4096;

/// What a rule may be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Opening a session.
    Connect = 1,
    /// Publishing to a topic.
    Publish = 2,
    /// Subscribing to a filter.
    Subscribe = 4,
    /// Leaving a will for a topic.
    Will = 8,
    /// Reading records of a stream.
    Read = 16,
    /// Appending records to a stream, by its name.
    Write = 32,
    /// Seeing that there is a stream or a group, and how it is.
    Describe = 64,
}

impl Action {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 7] = [
        ("connect", Self::Connect),
        ("publish", Self::Publish),
        ("subscribe", Self::Subscribe),
        ("will", Self::Will),
        ("read", Self::Read),
        ("write", Self::Write),
        ("describe", Self::Describe),
    ];

    /// By name.
    pub fn parse(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, action)| *action)
    }
}

/// Why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// No such action.
    Action(String),
    /// No topic filter, once its placeholders are filled in.
    Topic(String, TopicError),
    /// Braces around something that is no placeholder.
    Placeholder(String),
    /// `*` stands elsewhere than at the end.
    Star(String),
    /// No network.
    Address(String),
    /// More than [`RULES_MAX`].
    TooMany,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Action(name) => {
                let names = "connect, publish, subscribe, will, read, write and describe";
                write!(f, "\"{name}\" is no action; there are {names}")
            }
            Self::Topic(filter, error) => write!(f, "topic \"{filter}\": {error}"),
            Self::Placeholder(text) => {
                let known = "{clientid} and {username}";
                write!(f, "\"{text}\": the only placeholders are {known}")
            }
            Self::Star(text) => write!(f, "\"{text}\": * may stand at the end alone"),
            Self::Address(text) => write!(f, "\"{text}\" is no network, such as 10.0.0.0/8"),
            Self::TooMany => write!(f, "there are more than {RULES_MAX} rules"),
        }
    }
}

impl std::error::Error for RuleError {}

/// A rule as it is written; an empty list stands for all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Draft<'a> {
    /// Whether it lets through or holds back.
    pub allows: bool,
    /// Names of [`Action`].
    pub actions: &'a [String],
    /// User names; `*` at the end stands for any.
    pub users: &'a [String],
    /// Of users.
    pub roles: &'a [String],
    /// Client ids, with placeholders; `*` at the end stands for any.
    pub clients: &'a [String],
    /// Networks.
    pub addresses: &'a [String],
    /// Topic filters, with placeholders. Of topics, streams and groups, those that a rule does not
    /// name stand for none where it names others.
    pub topics: &'a [String],
    /// Names of streams; `*` at the end stands for any.
    pub streams: &'a [String],
    /// Names of consumer groups; `*` at the end stands for any.
    pub groups: &'a [String],
}

#[derive(Debug)]
struct Rule {
    allows: bool,
    /// Bits of [`Action`].
    actions: u8,
    users: Vec<Text>,
    roles: Vec<Box<str>>,
    clients: Vec<Text>,
    addresses: Vec<Network>,
    topics: Vec<TopicPattern>,
    streams: Vec<Text>,
    groups: Vec<Text>,
}

/// What was decided, and by which rule; None where none was about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it may be.
    pub is_allowed: bool,
    /// Of a subscription that may be, but not have all that it matches: the first rule that denies
    /// some of that.
    pub hole: Option<u16>,
    /// Its number, from 0.
    pub rule: Option<u16>,
}

/// A client that was let in, and the rules that are about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Who.
    pub principal: Principal,
    /// Numbers of rules, ascending.
    rules: Box<[u16]>,
}

/// All rules of a node.
#[derive(Debug, Default)]
pub struct Rules {
    all: Vec<Rule>,
    no_match: bool,
    /// Whether any names groups: until one does, they are everybody's.
    names_groups: bool,
}

impl Rules {
    /// No rules: `no_match` is what holds for everybody.
    pub const fn new(no_match: bool) -> Self {
        Self {
            all: Vec::new(),
            no_match,
            names_groups: false,
        }
    }

    /// Adds a rule behind those that are there.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn add(&mut self, draft: &Draft<'_>) -> Result<(), RuleError> {
        if self.all.len() >= RULES_MAX {
            return Err(RuleError::TooMany);
        }
        let mut actions = 0;
        for name in draft.actions {
            let action = Action::parse(name).ok_or_else(|| RuleError::Action(name.clone()))?;
            actions |= action as u8;
        }
        let texts = |each: &[String]| parsed(each, Text::parse);
        self.names_groups |= !draft.groups.is_empty();
        self.all.push(Rule {
            allows: draft.allows,
            actions: if actions == 0 { u8::MAX } else { actions },
            users: texts(draft.users)?,
            roles: draft
                .roles
                .iter()
                .map(|role| role.as_str().into())
                .collect(),
            clients: texts(draft.clients)?,
            addresses: parsed(draft.addresses, Network::parse)?,
            topics: parsed(draft.topics, TopicPattern::parse)?,
            streams: texts(draft.streams)?,
            groups: texts(draft.groups)?,
        });
        Ok(())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What holds where no rule does.
    pub const fn no_match(&self) -> bool {
        self.no_match
    }

    /// Finds the rules that are about a client.
    pub fn identify(&self, principal: Principal, client_id: &str) -> Identity {
        let who = principal.who(client_id);
        let about = |rule: &Rule| rule.is_about(&principal, &who);
        let numbers = 0_u16..;
        let rules = numbers.zip(&self.all).filter(|(_, rule)| about(rule));
        Identity {
            rules: rules.map(|(number, _)| number).collect(),
            principal,
        }
    }

    /// Whether a client may do something. `topic` is a topic name, for [`Action::Subscribe`] a
    /// filter without its `$share/GROUP/`, nothing for [`Action::Connect`], and the name of a
    /// stream for the others.
    pub fn decide(
        &self,
        identity: &Identity,
        client_id: &str,
        action: Action,
        topic: &str,
    ) -> Decision {
        let who = identity.principal.who(client_id);
        let is_filter = action == Action::Subscribe && topic.contains(['+', '#']);
        let is_allowed = self.no_match || action == Action::Connect;
        let named = |rule: &Rule| rule.reach_of_name(&rule.streams, topic, &who);
        match action {
            Action::Connect => self.walk(identity, action, is_allowed, |_| Reach::All),
            // The right to read a stream is one, whichever door it is read through.
            Action::Subscribe if topic.starts_with(STREAM) => {
                let name = topic[STREAM.len()..].split('/').next().unwrap_or("");
                self.decide(identity, client_id, Action::Read, name)
            }
            Action::Publish | Action::Subscribe | Action::Will => {
                self.walk(identity, action, is_allowed, |rule| {
                    rule.reach(topic, is_filter, &who)
                })
            }
            Action::Read | Action::Write => self.walk(identity, action, is_allowed, named),
            Action::Describe => described(&[Action::Read, Action::Write], |action| {
                self.walk(identity, action, is_allowed, named)
            }),
        }
    }

    /// Whether a client may read from within a consumer group, or describe it.
    pub fn decide_group(
        &self,
        identity: &Identity,
        client_id: &str,
        action: Action,
        group: &str,
    ) -> Decision {
        let who = identity.principal.who(client_id);
        let is_allowed = self.no_match || !self.names_groups;
        let ask = |action| {
            self.walk(identity, action, is_allowed, |rule| {
                rule.reach_of_name(&rule.groups, group, &who)
            })
        };
        match action {
            Action::Describe => described(&[Action::Read], ask),
            _ => ask(action),
        }
    }

    /// Asks the rules that are about a client and an action, in their order.
    #[inline]
    fn walk(
        &self,
        identity: &Identity,
        action: Action,
        no_match: bool,
        reach: impl Fn(&Rule) -> Reach,
    ) -> Decision {
        let mut hole = None;
        for &number in &identity.rules {
            let rule = &self.all[usize::from(number)];
            if rule.actions & action as u8 == 0 {
                continue;
            }
            match reach(rule) {
                Reach::All => {
                    return Decision {
                        is_allowed: rule.allows,
                        hole: hole.filter(|_| rule.allows),
                        rule: Some(number),
                    };
                }
                // A rule that allows some of a subscription allows none of it.
                Reach::Some if !rule.allows => hole = hole.or(Some(number)),
                Reach::Some | Reach::Nothing => {}
            }
        }
        Decision {
            is_allowed: no_match,
            hole: hole.filter(|_| no_match),
            rule: None,
        }
    }
}

impl Rule {
    fn is_about(&self, principal: &Principal, who: &Who<'_>) -> bool {
        let is_named = |texts: &[Text], name: Option<&str>| {
            texts.is_empty()
                || name.is_some_and(|name| texts.iter().any(|t| t.matches(name, who, self.allows)))
        };
        let has_role = || self.roles.iter().any(|role| principal.roles.contains(role));
        let is_from = |address| self.addresses.iter().any(|network| network.has(address));
        is_named(&self.users, who.username)
            && is_named(&self.clients, Some(who.client_id))
            && (self.roles.is_empty() || has_role())
            && (self.addresses.is_empty() || principal.address.is_some_and(is_from))
    }

    /// Whether it names nothing, and so is about all topics, streams and groups.
    fn is_about_all(&self) -> bool {
        self.topics.is_empty() && self.streams.is_empty() && self.groups.is_empty()
    }

    fn reach_of_name(&self, names: &[Text], name: &str, who: &Who<'_>) -> Reach {
        let is_named = |text: &Text| text.matches(name, who, self.allows);
        if self.is_about_all() || names.iter().any(is_named) {
            Reach::All
        } else {
            Reach::Nothing
        }
    }

    /// The farthest that any of its topics reaches.
    fn reach(&self, topic: &str, is_filter: bool, who: &Who<'_>) -> Reach {
        if self.is_about_all() {
            return Reach::All;
        }
        let mut farthest = Reach::Nothing;
        for pattern in &self.topics {
            let reach = pattern.reach(topic, is_filter, who, self.allows);
            farthest = farthest.max(reach);
            if farthest == Reach::All {
                break;
            }
        }
        farthest
    }
}

/// Whether something may be described: what rules say of that, or else whether its user may do
/// `more` with it.
fn described(more: &[Action], ask: impl Fn(Action) -> Decision) -> Decision {
    let decision = ask(Action::Describe);
    if decision.rule.is_some() {
        return decision;
    }
    let mut others = more.iter().map(|action| ask(*action));
    others
        .find(|decision| decision.is_allowed)
        .unwrap_or(decision)
}

fn parsed<T>(
    texts: &[String],
    parse: impl Fn(&str) -> Result<T, RuleError>,
) -> Result<Vec<T>, RuleError> {
    texts.iter().map(|text| parse(text)).collect()
}

#[cfg(test)]
mod tests;
