//! Templates of text: alternatives and slots.

use std::{collections::BTreeSet, fmt, str::FromStr};

/// A text with alternatives and slots.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Template(pub(super) Vec<TemplateNode>);

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TemplateNode {
    Text(String),
    OneOf(Vec<Template>),
    Slot(Slot),
}

/// `{form name}`, `{form name2}` or `{form table.column}`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Slot {
    pub(super) form: WordForm,
    pub(super) name: String,
    /// One, unless a digit follows the name.
    pub(super) nth: u8,
    /// Empty for a part and a list.
    pub(super) column: String,
    /// Whether it is a value of a list or table, and not a part.
    is_choice: bool,
}

/// The grammatical form of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordForm {
    AsItIs,
    Article,
    Plural,
    SecondPerson,
}

impl WordForm {
    pub(super) fn apply(self, value: String) -> String {
        let last = |n: usize| value.chars().rev().nth(n - 1).unwrap_or(' ');
        let vowel = |c: char| "aeiou".contains(c.to_ascii_lowercase());
        match self {
            Self::AsItIs => value,
            Self::Article if value.starts_with(vowel) => format!("an {value}"),
            Self::Article => format!("a {value}"),
            Self::Plural if last(1) == 'y' && !vowel(last(2)) => format!("{}ies", &value[..value.len() - 1]),
            Self::Plural if ["s", "x", "ch", "sh"].iter().any(|end| value.ends_with(end)) => format!("{value}es"),
            Self::Plural => format!("{value}s"),
            Self::SecondPerson => value.split(' ').map(second_person).collect::<Vec<_>>().join(" "),
        }
    }
}

fn second_person(word: &str) -> &str {
    match word {
        "I" | "me" => "you",
        "my" => "your",
        "mine" => "yours",
        "am" => "are",
        "myself" => "yourself",
        _ => word,
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.column.is_empty() { "" } else { "." };
        write!(f, "{{{}{dot}{}}}", self.name, self.column)
    }
}

impl Template {
    /// Returns the slots of parts that are outside alternatives.
    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.0.iter().filter_map(|node| match node {
            TemplateNode::Slot(slot) if !slot.is_choice => Some(slot),
            _ => None,
        })
    }

    /// Returns every slot, also those in alternatives.
    pub(super) fn all_slots(&self) -> Vec<&Slot> {
        let of = |node| match node {
            &TemplateNode::Text(_) => Vec::new(),
            TemplateNode::OneOf(alternatives) => alternatives.iter().flat_map(Self::all_slots).collect(),
            TemplateNode::Slot(slot) => vec![slot],
        };
        self.0.iter().flat_map(of).collect()
    }

    /// Marks the slots that are values of the lists and tables of these names.
    pub(super) fn mark_choices(&mut self, names: &BTreeSet<String>) {
        for node in &mut self.0 {
            if let TemplateNode::Slot(slot) = node {
                slot.is_choice = names.contains(&slot.name);
            }
        }
    }
}

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (template, rest) = sequence(text, false)?;
        if rest.is_empty() { Ok(template) } else { Err("`]` closes no bracket".to_owned()) }
    }
}

/// Reads nodes up to the end of the text, or of an alternative.
fn sequence(mut text: &str, nested: bool) -> Result<(Template, &str), String> {
    let mut nodes = Vec::new();
    loop {
        let end = text.find(['[', ']', '{', '}']).unwrap_or(text.len());
        let bar = if nested { text.find('|').unwrap_or(text.len()) } else { text.len() };
        let end = end.min(bar);
        if end > 0 {
            nodes.push(TemplateNode::Text(text[..end].to_owned()));
        }
        text = &text[end..];
        match text.chars().next() {
            None if nested => return Err("`[` is not closed".to_owned()),
            None | Some(']' | '|') => return Ok((Template(nodes), text)),
            Some('[') => {
                let mut alternatives = Vec::new();
                loop {
                    let (alternative, rest) = sequence(&text[1..], true)?;
                    alternatives.push(alternative);
                    text = rest;
                    if text.starts_with(']') {
                        break;
                    }
                }
                text = &text[1..];
                nodes.push(TemplateNode::OneOf(alternatives));
            }
            Some('{') => {
                let close = text.find('}').ok_or("`{` is not closed")?;
                nodes.push(TemplateNode::Slot(text[1..close].parse()?));
                text = &text[close + 1..];
            }
            Some(_) => return Err("`}` closes no brace".to_owned()),
        }
    }
}

impl FromStr for Slot {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (form, name) = match text.trim().split_once(' ') {
            None => (WordForm::AsItIs, text.trim()),
            Some(("a", name)) => (WordForm::Article, name),
            Some(("s", name)) => (WordForm::Plural, name),
            Some(("you", name)) => (WordForm::SecondPerson, name),
            Some((form, _)) => return Err(format!("`{form}` is no form of a slot: expected `a`, `s` or `you`")),
        };
        let (name, column) = name.split_once('.').unwrap_or((name, ""));
        let (name, nth) = match name.strip_suffix(|c: char| c.is_ascii_digit()) {
            Some(short) => (short, name.as_bytes()[short.len()] - b'0'),
            None => (name, 1),
        };
        if name.is_empty() {
            return Err("a slot without a name".to_owned());
        }
        Ok(Self { form, name: name.to_owned(), nth, column: column.to_owned(), is_choice: false })
    }
}
