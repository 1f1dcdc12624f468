//! A strict parser of the pages that the program writes: every element must be closed, in order.

/// Elements without content.
const VOID: [&str; 5] = ["meta", "link", "img", "input", "br"];
/// Elements whose content is not markup.
const RAW: [&str; 3] = ["script", "style", "title"];

#[derive(Debug, Clone)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) attributes: Vec<(String, String)>,
    /// The text of the element and of all its descendants.
    pub(crate) text: String,
    /// The indices of the enclosing elements, the innermost last.
    parents: Vec<usize>,
}

impl Element {
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn class(&self) -> &str {
        self.attribute("class").unwrap_or_default()
    }
}

#[derive(Debug)]
pub(crate) struct Document {
    elements: Vec<Element>,
}

impl Document {
    /// Parses a page; an error says what is wrong and where.
    pub(crate) fn parse(html: &str) -> Result<Self, String> {
        let mut rest = html.strip_prefix("<!DOCTYPE html>").ok_or("no doctype")?;
        let mut elements: Vec<Element> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        while let Some(start) = rest.find('<') {
            let text = unescape(&rest[..start])?;
            open.iter().for_each(|&at| elements[at].text.push_str(&text));
            rest = &rest[start..];
            let near = || rest.chars().take(80).collect::<String>();
            let end = tag_end(rest).ok_or_else(|| format!("a tag without an end: {}", near()))?;
            let tag = &rest[1..end];
            if let Some(name) = tag.strip_prefix('/') {
                let at = open.pop().ok_or_else(|| format!("nothing is open: {}", near()))?;
                if elements[at].name != name {
                    return Err(format!("<{}> is closed by </{name}>: {}", elements[at].name, near()));
                }
                rest = &rest[end + 1..];
                continue;
            }
            let (name, attributes) = attributes(tag).ok_or_else(|| format!("no tag: {}", near()))?;
            rest = &rest[end + 1..];
            let mut element = Element { name: name.clone(), attributes, text: String::new(), parents: open.clone() };
            if RAW.contains(&name.as_str()) {
                let close = format!("</{name}>");
                let end = rest.find(&close).ok_or_else(|| format!("<{name}> is not closed"))?;
                element.text = if name == "title" { unescape(&rest[..end])? } else { rest[..end].to_owned() };
                rest = &rest[end + close.len()..];
            } else if !VOID.contains(&name.as_str()) {
                open.push(elements.len());
            }
            elements.push(element);
        }
        if !open.is_empty() || !rest.trim().is_empty() {
            return Err(format!("left open: {open:?}; left over: {rest:?}"));
        }
        Ok(Self { elements })
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Element> {
        self.elements.iter()
    }

    pub(crate) fn elements<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.elements.iter().filter(move |element| element.name == name)
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        self.elements(name).count()
    }

    pub(crate) fn tags(&self) -> Vec<&str> {
        self.elements.iter().map(|element| element.name.as_str()).collect()
    }

    pub(crate) fn text_of<'a>(&'a self, name: &'a str) -> Vec<&'a str> {
        self.elements(name).map(|element| element.text.as_str()).collect()
    }

    /// Asserts that no id occurs twice, and that every link within the page has a target.
    pub(crate) fn check_ids(&self) {
        let mut ids: Vec<&str> = self.elements.iter().filter_map(|element| element.attribute("id")).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "an id occurs twice");
        for element in &self.elements {
            for name in ["href", "aria-labelledby"] {
                let target = element.attribute(name).map(|target| target.trim_start_matches('#'));
                let target = target.filter(|target| *target != "data:,");
                assert!(target.is_none_or(|target| ids.contains(&target)), "{name} to {target:?}");
            }
        }
    }

    /// Restores the CSV of a table from its cells.
    pub(crate) fn csv(&self, id: &str) -> String {
        let id = format!("table-{id}");
        let place =
            self.elements.iter().position(|element| element.attribute("id") == Some(&id)).unwrap_or_else(|| panic!("no {id}"));
        let mut rows: Vec<(usize, Vec<String>)> = Vec::new();
        for cell in self.elements.iter().filter(|element| element.parents.contains(&place)) {
            let Some(fields) = cell.attribute("data-fields") else { continue };
            let row = *cell.parents.last().unwrap();
            if rows.last().is_none_or(|(last, _)| *last != row) {
                rows.push((row, Vec::new()));
            }
            rows.last_mut().unwrap().1.extend(serde_json::from_str::<Vec<String>>(fields).unwrap());
        }
        let mut writer = csv::Writer::from_writer(Vec::new());
        rows.iter().for_each(|(_, fields)| writer.write_record(fields).unwrap());
        String::from_utf8(writer.into_inner().unwrap()).unwrap()
    }
}

/// The position of the `>` that ends a tag, outside of quotes.
fn tag_end(text: &str) -> Option<usize> {
    let mut quoted = false;
    text.char_indices().find_map(|(at, c)| {
        quoted ^= c == '"';
        (c == '>' && !quoted).then_some(at)
    })
}

fn attributes(tag: &str) -> Option<(String, Vec<(String, String)>)> {
    let (name, mut rest) = tag.split_at(tag.find(|c: char| c.is_whitespace()).unwrap_or(tag.len()));
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
        return None;
    }
    let mut attributes = Vec::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Some((name.to_owned(), attributes));
        }
        let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let (key, after) = rest.split_at(end);
        if !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return None;
        }
        match after.strip_prefix("=\"") {
            Some(value) => {
                let close = value.find('"')?;
                attributes.push((key.to_owned(), unescape(&value[..close]).ok()?));
                rest = &value[close + 1..];
            }
            None => {
                attributes.push((key.to_owned(), String::new()));
                rest = after;
            }
        }
    }
}

/// Replaces character references; an ampersand that begins none is an error.
fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        plain.push_str(&rest[..at]);
        let end = rest[at..].find(';').ok_or_else(|| format!("a lone ampersand: {}", &rest[at..]))?;
        plain.push(match &rest[at + 1..at + end] {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "#x27" | "#39" => '\'',
            "#x2f" => '/',
            other => return Err(format!("an unknown reference: {other}")),
        });
        rest = &rest[at + end + 1..];
    }
    plain.push_str(rest);
    Ok(plain)
}
