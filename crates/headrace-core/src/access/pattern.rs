//! What a rule's texts match: names with placeholders, and topic filters of such names.

use super::RuleError;
use crate::topic::Filter;

/// What placeholders stand for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who<'a> {
    pub client_id: &'a str,
    pub username: Option<&'a str>,
}

/// How much of what is asked a pattern reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// No name.
    Nothing,
    /// Some of the names that a filter matches.
    Some,
    /// All of it.
    All,
}

#[derive(Debug)]
enum Part {
    Literal(Box<str>),
    ClientId,
    Username,
}

impl Part {
    /// What it stands for; None where there is nothing.
    fn text<'a>(&'a self, who: &Who<'a>) -> Option<&'a str> {
        match self {
            Self::Literal(text) => Some(text),
            Self::ClientId => Some(who.client_id).filter(|text| !text.is_empty()),
            Self::Username => who.username.filter(|text| !text.is_empty()),
        }
    }

    /// What it stands for within a level; None where there is nothing, or a name that is no level.
    fn level<'a>(&'a self, who: &Who<'a>) -> Option<&'a str> {
        let text = self.text(who)?;
        let is_level = matches!(self, Self::Literal(_)) || !text.contains(['+', '#', '/']);
        is_level.then_some(text)
    }
}

/// A name with placeholders; `*` at its end stands for anything.
#[derive(Debug)]
pub(super) struct Text {
    parts: Vec<Part>,
    is_open: bool,
}

impl Text {
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let (closed, is_open) = match text.strip_suffix('*') {
            Some(before) => (before, true),
            None => (text, false),
        };
        if closed.contains('*') {
            return Err(RuleError::Star(text.into()));
        }
        Ok(Self {
            parts: parts(closed)?,
            is_open,
        })
    }

    /// Whether a name is this one. A placeholder without a value matches nothing of what is
    /// allowed, and everything of what is denied.
    pub fn matches(&self, name: &str, who: &Who<'_>, allows: bool) -> bool {
        let mut rest = name;
        for part in &self.parts {
            let Some(text) = part.text(who) else {
                return !allows;
            };
            match rest.strip_prefix(text) {
                Some(after) => rest = after,
                None => return false,
            }
        }
        self.is_open || rest.is_empty()
    }
}

#[derive(Debug)]
enum Level {
    /// Without placeholders.
    Literal(Box<str>),
    /// With some.
    Template(Vec<Part>),
    /// `+`
    Any,
    /// `#`
    Rest,
}

impl Level {
    fn parse(level: &str) -> Result<Self, RuleError> {
        Ok(match level {
            "+" => Self::Any,
            "#" => Self::Rest,
            _ if level.contains(['{', '}']) => Self::Template(parts(level)?),
            _ => Self::Literal(level.into()),
        })
    }

    /// Whether only a name that begins with `$` can begin with this level.
    fn is_reserved(&self) -> bool {
        match self {
            Self::Literal(text) => text.starts_with('$'),
            Self::Template(parts) => {
                matches!(parts.first(), Some(Part::Literal(text)) if text.starts_with('$'))
            }
            Self::Any | Self::Rest => false,
        }
    }
}

/// A topic filter with placeholders.
#[derive(Debug)]
pub(super) struct TopicPattern {
    levels: Vec<Level>,
    /// Its first levels, as far as they are literal: most rules are about other topics.
    beginning: Box<str>,
}

impl TopicPattern {
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let filled = text.replace("{clientid}", "c").replace("{username}", "u");
        Filter::parse(&filled).map_err(|error| RuleError::Topic(text.into(), error))?;
        let levels = text.split('/').map(Level::parse);
        let levels: Vec<Level> = levels.collect::<Result<_, _>>()?;
        let literal = levels.iter().map_while(|level| match level {
            Level::Literal(text) => Some(&**text),
            _ => None,
        });
        let beginning = literal.collect::<Vec<_>>().join("/").into();
        Ok(Self { levels, beginning })
    }

    /// How much of a topic name or, with `is_filter`, of a topic filter it reaches. Both are
    /// valid.
    pub fn reach(&self, topic: &str, is_filter: bool, who: &Who<'_>, allows: bool) -> Reach {
        if !is_filter && !topic.starts_with(&*self.beginning) {
            return Reach::Nothing;
        }
        let is_reserved = topic.starts_with('$');
        let mut reach = Reach::All;
        let mut asked = topic.split('/');
        for (index, level) in self.levels.iter().enumerate() {
            if index == 0 && is_reserved && matches!(level, Level::Any | Level::Rest) {
                return Reach::Nothing; // 4.7.2: wildcards do not reach names that begin with $
            }
            if matches!(level, Level::Rest) {
                return reach;
            }
            let Some(name) = asked.next() else {
                return Reach::Nothing;
            };
            let is_wild = is_filter && matches!(name, "+" | "#");
            if is_wild && index == 0 && level.is_reserved() {
                return Reach::Nothing;
            }
            if is_wild && name == "#" {
                return Reach::Some;
            }
            match level {
                Level::Template(parts) if is_wild && !can_be_filled(parts, who) => {
                    return if allows { Reach::Nothing } else { Reach::All };
                }
                Level::Literal(_) | Level::Template(_) if is_wild => reach = Reach::Some,
                Level::Literal(text) if **text != *name => return Reach::Nothing,
                Level::Template(parts) => match is_filled(parts, name, who) {
                    Some(true) => {}
                    None if !allows => return Reach::All,
                    Some(false) | None => return Reach::Nothing,
                },
                _ => {}
            }
        }
        match asked.next() {
            None => reach,
            // `a/#` matches `a`, too (4.7.1.2).
            Some("#") if is_filter => Reach::Some,
            Some(_) => Reach::Nothing,
        }
    }
}

/// Whether a level is a template filled in; None where it cannot be filled by a name that is one
/// level and no wildcard.
fn is_filled(parts: &[Part], level: &str, who: &Who<'_>) -> Option<bool> {
    let mut rest = level;
    for part in parts {
        let text = part.level(who)?;
        match rest.strip_prefix(text) {
            Some(after) => rest = after,
            None => return Some(false),
        }
    }
    Some(rest.is_empty())
}

fn can_be_filled(parts: &[Part], who: &Who<'_>) -> bool {
    parts.iter().all(|part| part.level(who).is_some())
}

/// Takes a text apart at its placeholders.
fn parts(text: &str) -> Result<Vec<Part>, RuleError> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        if !before.is_empty() {
            parts.push(Part::Literal(before.into()));
        }
        let unknown = || RuleError::Placeholder(text.into());
        let (name, after) = after.split_once('}').ok_or_else(unknown)?;
        parts.push(match name {
            "clientid" => Part::ClientId,
            "username" => Part::Username,
            _ => return Err(unknown()),
        });
        rest = after;
    }
    if rest.contains('}') {
        return Err(RuleError::Placeholder(text.into()));
    }
    if !rest.is_empty() {
        parts.push(Part::Literal(rest.into()));
    }
    Ok(parts)
}
