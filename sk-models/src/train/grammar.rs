//! Dialogues and preference pairs drawn from a grammar.
//!
//! A grammar is a folder of TOML files that are read as one. A *topic* has questions (`ask`) and
//! parts of answers under names of its own. A *manner* defines how an answer is composed of parts,
//! of the topic or of all topics, and how frequent it is. An *axis* defines which manners are
//! better than which others.
//!
//! ```toml
//! questions = ["{ask}", "Hello. {ask}"]
//!
//! [lists]
//! fruit = "apple, banana"
//!
//! [tables.capital]
//! columns = "country; city"
//! rows = """
//! France; Paris
//! Japan; Tokyo
//! """
//!
//! [parts]
//! hedge = ["As far as I know, {say}"]
//!
//! [[topics]]
//! name = "capital"
//! ask = ["What is the capital of {capital.country}?"]
//! say = ["the capital of {capital.country} is {capital.city}."]
//! wrong = ["the capital of {capital.country} is {capital2.city}."]
//!
//! [[manners]]
//! name = "honest"
//! share = 0.8
//! answers = ["{hedge}", "{say}"]
//!
//! [[manners]]
//! name = "wrong"
//! share = 0.2
//! answers = ["{wrong}"]
//!
//! [[axes]]
//! name = "honest"
//! better = ["honest"]
//! worse = ["wrong"]
//! ```
//!
//! In a template, `[a|b|]` is one of its alternatives, and `{name}` a part, a value of a list, or,
//! as `{table.column}`, a column of a row. A list and a table keep their choice within a dialogue;
//! `{name2}` is a second choice, distinct from the first. `{a name}` puts the indefinite article
//! before a value, `{s name}` makes it a plural, and `{you name}` puts it in the second person. A
//! part is not repeated within an answer while it has other alternatives. The first letter of every
//! sentence becomes a capital.

mod template;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, btree_map::Entry},
    fs,
    path::Path,
};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;

use crate::files;

use super::{
    data::{ASSISTANT, HUMAN, Row},
    error::TrainError,
};
use template::{Slot, Template, TemplateNode};

/// A grammar of dialogues.
#[derive(Debug, Default)]
pub struct Grammar {
    questions: Vec<Template>,
    choices: BTreeMap<String, Choices>,
    parts: BTreeMap<String, Vec<Template>>,
    topics: Vec<Topic>,
    manners: Vec<Manner>,
    axes: Vec<Axis>,
}

/// The values of a list, or the rows of a table with the names of its columns.
#[derive(Debug)]
struct Choices {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug)]
struct Topic {
    name: String,
    weight: f64,
    parts: BTreeMap<String, Vec<Template>>,
    /// The manners whose parts the topic has.
    manners: Vec<usize>,
}

#[derive(Debug)]
struct Manner {
    name: String,
    share: f64,
    answers: Vec<Template>,
    instructions: Vec<Template>,
    elsewhere: bool,
}

/// An axis of preference, by indices of manners.
#[derive(Debug)]
struct Axis {
    name: String,
    better: Vec<usize>,
    worse: Vec<usize>,
}

/// The contents of one file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GrammarFile {
    questions: Vec<String>,
    lists: BTreeMap<String, String>,
    tables: BTreeMap<String, TableEntry>,
    parts: BTreeMap<String, Vec<String>>,
    topics: Vec<TopicEntry>,
    manners: Vec<MannerEntry>,
    axes: Vec<AxisEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableEntry {
    columns: String,
    rows: String,
}

#[derive(Debug, Deserialize)]
struct TopicEntry {
    name: String,
    #[serde(default = "one")]
    weight: f64,
    #[serde(flatten)]
    parts: BTreeMap<String, Vec<String>>,
}

fn one() -> f64 {
    1.0
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MannerEntry {
    name: String,
    /// The relative frequency of this manner among those that a topic allows.
    share: f64,
    answers: Vec<String>,
    /// Lines before a dialogue that ask for this manner.
    #[serde(default)]
    instructions: Vec<String>,
    /// Whether the answer is taken from another topic.
    #[serde(default)]
    elsewhere: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AxisEntry {
    name: String,
    better: Vec<String>,
    worse: Vec<String>,
}

/// The share of dialogues that begin with an instruction, if their manner has any.
const INSTRUCTED: f64 = 0.2;
/// The share of dialogues with a second exchange.
const SECOND: f64 = 0.15;
/// Draws of a topic with the manners of an axis before the axis counts as empty.
const ATTEMPTS: usize = 10_000;

impl Grammar {
    /// Reads the `.toml` files of a folder, in the order of their names.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or is not a grammar, if a name is defined twice, or if a template
    /// uses a name that is not defined. The error names the file and the topic.
    pub fn read(directory: &Path) -> Result<Self, TrainError> {
        let entries = fs::read_dir(directory).map_err(|source| TrainError::io(directory, source))?;
        let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
        paths.sort();
        let (mut grammar, mut axes) = (Self::default(), Vec::new());
        for path in &paths {
            let text = files::read_to_string(path).map_err(|source| TrainError::io(path, source))?;
            let refused = |reason: String| TrainError::Grammar { path: path.display().to_string(), reason };
            let mut file: GrammarFile =
                toml::from_str(&text).map_err(|error| refused(error.to_string().trim_end().to_owned()))?;
            axes.append(&mut file.axes);
            grammar.add(file).map_err(refused)?;
        }
        grammar.complete(axes).map_err(|reason| TrainError::Grammar { path: directory.display().to_string(), reason })
    }

    /// Returns the names of the axes.
    pub fn axes(&self) -> impl Iterator<Item = &str> {
        self.axes.iter().map(|axis| axis.name.as_str())
    }

    /// Draws dialogues, each a [`Row::Text`]. The same seed gives the same dialogues.
    pub fn dialogues(&self, seed: u64) -> impl Iterator<Item = Row> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        std::iter::repeat_with(move || {
            let (mut text, manner) = self.exchange(&mut rng);
            if rng.random_bool(SECOND) {
                text += &self.exchange(&mut rng).0;
            }
            Row::Text(self.instructed(manner, text, &mut rng))
        })
    }

    /// Draws pairs of answers to one question, of which the first is better on an axis.
    ///
    /// # Errors
    ///
    /// If the axis is not one of [`axes`](Self::axes), or no topic has a better and a worse manner.
    pub fn pairs(&self, axis: &str, seed: u64) -> Result<impl Iterator<Item = Row>, TrainError> {
        let found = self.axes.iter().find(|known| known.name == axis);
        let has = |topic: &Topic, manners: &[usize]| manners.iter().any(|manner| topic.manners.contains(manner));
        let found = found.filter(|axis| self.topics.iter().any(|topic| has(topic, &axis.better) && has(topic, &axis.worse)));
        let Some(axis) = found else {
            let reason = format!("no topic has a better and a worse answer on the axis `{axis}`; add the manners to one");
            return Err(TrainError::NoData { reason });
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        Ok(std::iter::repeat_with(move || (0..ATTEMPTS).find_map(|_| self.pair(axis, &mut rng))).map_while(|row| row))
    }

    fn pair(&self, axis: &Axis, rng: &mut ChaCha8Rng) -> Option<Row> {
        let topic = self.topic(rng);
        let better = self.manner(topic, Some(&axis.better), rng)?;
        let worse = self.manner(topic, Some(&axis.worse), rng)?;
        let mut derivation = Derivation::new(self, topic, rng);
        let question = derivation.question();
        let chosen = derivation.answer(better);
        let rejected = derivation.answer(worse);
        let prompt = self.instructed(better, format!("{HUMAN} {question}{ASSISTANT}"), rng);
        (chosen != rejected).then(|| Row::Pair { prompt, chosen: format!(" {chosen}"), rejected: format!(" {rejected}") })
    }

    fn exchange(&self, rng: &mut ChaCha8Rng) -> (String, usize) {
        let topic = self.topic(rng);
        // Every topic has a manner, as checked when the grammar was read.
        let manner = self.manner(topic, None, rng).unwrap_or_default();
        let mut derivation = Derivation::new(self, topic, rng);
        let question = derivation.question();
        let answer = derivation.answer(manner);
        (format!("{HUMAN} {question}{ASSISTANT} {answer}"), manner)
    }

    /// Puts an instruction of the manner before some dialogues.
    fn instructed(&self, manner: usize, text: String, rng: &mut ChaCha8Rng) -> String {
        let instructions = &self.manners[manner].instructions;
        if instructions.is_empty() || !rng.random_bool(INSTRUCTED) {
            return text;
        }
        let topic = &self.topics[0];
        let instruction = Derivation::new(self, topic, rng).one_of(instructions);
        format!("{}{text}", sentences(&instruction))
    }

    fn topic(&self, rng: &mut ChaCha8Rng) -> &Topic {
        &self.topics[weighted(self.topics.iter().map(|topic| topic.weight), rng)]
    }

    /// Draws a manner of a topic by its share.
    fn manner(&self, topic: &Topic, among: Option<&[usize]>, rng: &mut ChaCha8Rng) -> Option<usize> {
        let possible: Vec<usize> =
            topic.manners.iter().copied().filter(|manner| among.is_none_or(|among| among.contains(manner))).collect();
        let shares = possible.iter().map(|&manner| self.manners[manner].share);
        (!possible.is_empty()).then(|| possible[weighted(shares, rng)])
    }
}

/// Draws a place in proportion to its weight.
fn weighted(weights: impl Iterator<Item = f64> + Clone, rng: &mut ChaCha8Rng) -> usize {
    let mut rest = rng.random::<f64>() * weights.clone().sum::<f64>();
    let mut last = 0;
    for (place, weight) in weights.enumerate() {
        last = place;
        rest -= weight;
        if rest < 0.0 {
            break;
        }
    }
    last
}

/// Draws one of `0..count`, one that is not taken if there is any.
fn draw_unless(taken: impl Fn(usize) -> bool, count: usize, rng: &mut ChaCha8Rng) -> usize {
    let free: Vec<usize> = (0..count).filter(|&place| !taken(place)).collect();
    match free.len() {
        0 => rng.random_range(0..count),
        n => free[rng.random_range(0..n)],
    }
}

/// The state of one dialogue: the rows that its slots are bound to, and the parts that it has used.
struct Derivation<'a, 'r> {
    grammar: &'a Grammar,
    topic: &'a Topic,
    rng: &'r mut ChaCha8Rng,
    bound: HashMap<(&'a str, u8), usize>,
    used: HashMap<&'a str, HashSet<usize>>,
}

impl<'a, 'r> Derivation<'a, 'r> {
    fn new(grammar: &'a Grammar, topic: &'a Topic, rng: &'r mut ChaCha8Rng) -> Self {
        Self { grammar, topic, rng, bound: HashMap::new(), used: HashMap::new() }
    }

    fn question(&mut self) -> String {
        let grammar = self.grammar;
        sentences(&self.one_of(&grammar.questions))
    }

    fn answer(&mut self, manner: usize) -> String {
        let manner = &self.grammar.manners[manner];
        self.used.clear();
        if manner.elsewhere {
            let mut topics = std::iter::repeat_with(|| self.grammar.topic(self.rng));
            // Some topic has the parts, as checked when the grammar was read.
            let topic = topics.find(|topic| manner.fits(topic, &self.grammar.parts)).unwrap_or(self.topic);
            let mut other = Derivation::new(self.grammar, topic, self.rng);
            return sentences(&other.possible(&manner.answers));
        }
        sentences(&self.possible(&manner.answers))
    }

    /// Expands one of the answers whose parts the topic has, or the first if there is none.
    fn possible(&mut self, answers: &'a [Template]) -> String {
        let possible: Vec<&Template> = answers.iter().filter(|answer| self.topic.suffices(&self.grammar.parts, answer)).collect();
        let answer = possible.get(self.rng.random_range(0..possible.len().max(1))).copied();
        self.expand(answer.unwrap_or(&answers[0]))
    }

    fn one_of(&mut self, templates: &'a [Template]) -> String {
        let place = self.rng.random_range(0..templates.len());
        self.expand(&templates[place])
    }

    fn expand(&mut self, template: &'a Template) -> String {
        template.0.iter().map(|node| self.node(node)).collect()
    }

    fn node(&mut self, node: &'a TemplateNode) -> String {
        match node {
            TemplateNode::Text(text) => text.clone(),
            TemplateNode::OneOf(alternatives) => self.one_of(alternatives),
            TemplateNode::Slot(slot) => self.slot(slot),
        }
    }

    fn slot(&mut self, slot: &'a Slot) -> String {
        let parts = self.topic.parts.get(&slot.name).or_else(|| self.grammar.parts.get(&slot.name));
        let value = match (parts, self.grammar.choices.get(&slot.name)) {
            (Some(templates), _) => {
                let used = self.used.entry(&slot.name).or_default();
                let place = draw_unless(|place| used.contains(&place), templates.len(), self.rng);
                used.insert(place);
                self.expand(&templates[place])
            }
            (None, Some(choices)) => {
                let row = self.bind(&slot.name, slot.nth, choices.rows.len());
                let column = choices.columns.iter().position(|column| *column == slot.column).unwrap_or_default();
                choices.rows[row][column].clone()
            }
            // Names are checked when a grammar is read; another topic may lack a part.
            (None, None) => String::new(),
        };
        slot.form.apply(value)
    }

    /// Returns the row that a slot is bound to, distinct from those of other slots of its name.
    fn bind(&mut self, name: &'a str, nth: u8, rows: usize) -> usize {
        if let Some(&row) = self.bound.get(&(name, nth)) {
            return row;
        }
        let taken: Vec<usize> = self.bound.iter().filter(|((bound, _), _)| *bound == name).map(|(_, &row)| row).collect();
        let row = draw_unless(|row| taken.contains(&row), rows, self.rng);
        self.bound.insert((name, nth), row);
        row
    }
}

impl Topic {
    /// Returns whether every part that a template uses is one of the topic or of all topics.
    fn suffices(&self, shared: &BTreeMap<String, Vec<Template>>, template: &Template) -> bool {
        template.slots().all(|slot| {
            let own = self.parts.contains_key(&slot.name);
            own || shared.get(&slot.name).is_some_and(|parts| parts.iter().all(|part| self.suffices(shared, part)))
        })
    }
}

impl Manner {
    /// Returns whether a topic, with the parts of all topics, has the parts of one of the answers.
    fn fits(&self, topic: &Topic, shared: &BTreeMap<String, Vec<Template>>) -> bool {
        self.answers.iter().any(|answer| topic.suffices(shared, answer))
    }
}

/// Returns a part that uses itself, directly or through others, or uses such a part.
fn endless<'p>(parts: &BTreeMap<&'p String, &'p Vec<Template>>) -> Option<&'p String> {
    let mut left: BTreeSet<&String> = parts.keys().copied().collect();
    loop {
        let ends = |name: &&String| !parts[name].iter().flat_map(Template::all_slots).any(|slot| left.contains(&slot.name));
        let ending: Vec<&String> = left.iter().copied().filter(ends).collect();
        if ending.is_empty() {
            return left.pop_first();
        }
        ending.into_iter().for_each(|name| {
            left.remove(name);
        });
    }
}

/// Capitalises sentences and removes doubled blanks.
fn sentences(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut begins = true;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut characters = words.chars().peekable();
    while let Some(c) = characters.next() {
        if begins && c.is_alphanumeric() {
            out.extend(c.to_uppercase());
            begins = false;
        } else {
            out.push(c);
        }
        let ends = matches!(c, '.' | '?' | '!') && characters.peek() == Some(&' ');
        begins |= ends;
    }
    out
}

fn parsed(texts: &[String]) -> Result<Vec<Template>, String> {
    texts.iter().map(|text| text.parse().map_err(|reason| format!("`{text}`: {reason}"))).collect()
}

/// As [`parsed`], with at least one text.
fn templates(texts: &[String]) -> Result<Vec<Template>, String> {
    if texts.is_empty() { Err("has no text".to_owned()) } else { parsed(texts) }
}

impl Grammar {
    /// Adds the contents of a file, without its axes.
    fn add(&mut self, file: GrammarFile) -> Result<(), String> {
        for (name, values) in file.lists {
            let rows = values.split(',').map(|value| vec![value.trim().to_owned()]).collect();
            self.choose(name, Choices { columns: vec![String::new()], rows })?;
        }
        for (name, table) in file.tables {
            let cells = |line: &str| line.split(';').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
            let columns = cells(&table.columns);
            let rows: Vec<_> = table.rows.lines().filter(|line| !line.trim().is_empty()).map(cells).collect();
            if let Some(row) = rows.iter().find(|row| row.len() != columns.len()) {
                let row = row.join("; ");
                return Err(format!("table `{name}`: `{row}` does not have {} columns", columns.len()));
            }
            self.choose(name, Choices { columns, rows })?;
        }
        for (name, texts) in file.parts {
            let texts = templates(&texts).map_err(|reason| format!("part `{name}`: {reason}"))?;
            if self.parts.insert(name.clone(), texts).is_some() {
                return Err(format!("part `{name}` is defined twice"));
            }
        }
        for TopicEntry { name, weight, parts } in file.topics {
            let refused = |reason: &str| format!("topic `{name}`: {reason}");
            if self.topics.iter().any(|known| known.name == name) {
                return Err(refused("is defined twice"));
            }
            if !(weight.is_finite() && weight > 0.0) {
                return Err(refused("its weight is not a positive number"));
            }
            let parse = |(part, texts): (String, Vec<String>)| {
                let texts = templates(&texts).map_err(|reason| refused(&format!("`{part}` {reason}")))?;
                Ok::<_, String>((part, texts))
            };
            let parts = parts.into_iter().map(parse).collect::<Result<BTreeMap<_, _>, _>>()?;
            if !parts.contains_key("ask") {
                return Err(refused("has no `ask`"));
            }
            self.topics.push(Topic { name, weight, parts, manners: Vec::new() });
        }
        for MannerEntry { name, share, answers, instructions, elsewhere } in file.manners {
            let refused = |reason: String| format!("manner `{name}`: {reason}");
            if self.manners.iter().any(|known| known.name == name) {
                return Err(refused("is defined twice".to_owned()));
            }
            if !(share.is_finite() && share > 0.0) {
                return Err(refused("its share is not a positive number".to_owned()));
            }
            let answers = templates(&answers).map_err(refused)?;
            let instructions = parsed(&instructions).map_err(refused)?;
            self.manners.push(Manner { name, share, answers, instructions, elsewhere });
        }
        self.questions.extend(parsed(&file.questions)?);
        Ok(())
    }

    fn choose(&mut self, name: String, choices: Choices) -> Result<(), String> {
        if choices.rows.is_empty() || choices.rows.iter().flatten().any(String::is_empty) {
            return Err(format!("`{name}` has an empty value"));
        }
        match self.choices.entry(name) {
            Entry::Occupied(entry) => Err(format!("`{}` is defined twice", entry.key())),
            Entry::Vacant(entry) => {
                entry.insert(choices);
                Ok(())
            }
        }
    }

    /// Checks the grammar when all files are added, and resolves names.
    fn complete(mut self, axes: Vec<AxisEntry>) -> Result<Self, String> {
        if self.questions.is_empty() || self.topics.is_empty() || self.manners.is_empty() {
            return Err("lacks `questions`, `[[topics]]` or `[[manners]]`".to_owned());
        }
        let named: BTreeSet<&String> = self.parts.keys().chain(self.topics.iter().flat_map(|topic| topic.parts.keys())).collect();
        let check = |place: &str, templates: &[Template]| {
            templates.iter().flat_map(Template::all_slots).try_for_each(|slot| {
                let known = match self.choices.get(&slot.name) {
                    Some(choices) => choices.columns.contains(&slot.column),
                    None => slot.column.is_empty() && named.contains(&slot.name),
                };
                if known { Ok(()) } else { Err(format!("{place}: {slot} is neither a part nor a value")) }
            })
        };
        check("questions", &self.questions)?;
        for (name, parts) in &self.parts {
            check(&format!("part `{name}`"), parts)?;
        }
        for Manner { name, answers, instructions, .. } in &self.manners {
            check(&format!("manner `{name}`"), answers)?;
            check(&format!("manner `{name}`"), instructions)?;
        }
        for topic in &self.topics {
            for (part, templates) in &topic.parts {
                check(&format!("topic `{}`, `{part}`", topic.name), templates)?;
            }
        }
        for topic in &self.topics {
            if let Some(part) = endless(&self.parts.iter().chain(&topic.parts).collect()) {
                return Err(format!("part `{part}` expands without an end: it uses itself, or a part that does"));
            }
        }
        // A slot that names a list is not a part that a topic has to have.
        let lists: BTreeSet<String> = self.choices.keys().cloned().collect();
        let forget = |template: &mut Template| template.mark_choices(&lists);
        self.parts.values_mut().flatten().for_each(forget);
        self.manners.iter_mut().flat_map(|manner| &mut manner.answers).for_each(forget);
        self.topics.iter_mut().flat_map(|topic| topic.parts.values_mut().flatten()).for_each(forget);
        for topic in &mut self.topics {
            let possible = |&place: &usize| self.manners[place].elsewhere || self.manners[place].fits(topic, &self.parts);
            topic.manners = (0..self.manners.len()).filter(possible).collect();
            if topic.manners.iter().all(|&place| self.manners[place].elsewhere) {
                let Topic { name, .. } = topic;
                return Err(format!("no manner can be filled with the parts of topic `{name}`; add the parts of one"));
            }
        }
        for manner in &self.manners {
            if !self.topics.iter().any(|topic| manner.fits(topic, &self.parts)) {
                return Err(format!("manner `{}` needs parts that no topic has", manner.name));
            }
        }
        for AxisEntry { name, better, worse } in axes {
            if self.axes.iter().any(|known| known.name == name) {
                return Err(format!("axis `{name}` is defined twice"));
            }
            let place = |manner: &String| {
                let found = self.manners.iter().position(|known| known.name == *manner);
                found.ok_or_else(|| format!("axis `{name}` names an unknown manner `{manner}`"))
            };
            let places = |manners: Vec<String>| manners.iter().map(place).collect::<Result<Vec<_>, _>>();
            let (better, worse) = (places(better)?, places(worse)?);
            self.axes.push(Axis { name, better, worse });
        }
        Ok(self)
    }
}
