//! Random mutations of an input: of its bytes, or of its syntax tree.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value};

/// Maximum length of an input in bytes.
const LONGEST: usize = 1 << 16;

/// Numbers at which sizes, signs and types change.
const NUMBERS: [&str; 24] = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "64",
    "127",
    "255",
    "256",
    "65535",
    "65536",
    "1e9",
    "2147483647",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e-308",
    "0.5",
    "-0.0",
];

/// Texts that a parser may not expect.
const TEXTS: [&str; 16] = [
    "",
    " ",
    "a",
    "\u{0}",
    "\u{1b}[2J",
    "é",
    "\u{202e}",
    "../x",
    "/",
    "(a+)+$",
    "[[[[",
    "%99999d",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
    "NaN",
    "null",
    "💥",
];

/// Returns the generator of an input, seeded with the seed, the target and the number of the
/// input. It gives the same numbers on every machine.
pub(crate) fn rng(seed: u64, target: usize, number: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream((target as u64) << 48 ^ number);
    rng
}

fn pick<'a>(rng: &mut ChaCha8Rng, all: &[&'a str]) -> &'a str {
    all[rng.random_range(0..all.len())]
}

/// The syntax of the inputs of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    Json,
    Toml,
    /// The header of a safetensors file: its length in eight bytes, then JSON.
    Safetensors,
    Text,
}

/// Returns an entry of the corpus with one to eight mutations.
pub(crate) fn input(rng: &mut ChaCha8Rng, corpus: &[Vec<u8>], words: &[&str], syntax: Syntax) -> Vec<u8> {
    let mut bytes = corpus[rng.random_range(0..corpus.len())].clone();
    for _ in 0..1 + rng.random_range(0..8).min(rng.random_range(0..8)) {
        // Half of the mutations keep the syntax valid, so that code after the parser is reached.
        let kept = rng.random_range(0..2) == 0 && structural(rng, &mut bytes, words, syntax);
        if !kept {
            blind(rng, &mut bytes, corpus, words);
        }
        bytes.truncate(LONGEST);
    }
    bytes
}

/// Returns a random range of `bytes`; short ranges are more likely.
fn span(rng: &mut ChaCha8Rng, bytes: &[u8]) -> (usize, usize) {
    let start = rng.random_range(0..bytes.len() + 1);
    let most = (bytes.len() - start).min(1 << rng.random_range(0..12));
    (start, start + rng.random_range(0..most + 1))
}

fn blind(rng: &mut ChaCha8Rng, bytes: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[&str]) {
    let (start, end) = span(rng, bytes);
    match rng.random_range(0..11) {
        0 if !bytes.is_empty() => {
            let at = rng.random_range(0..bytes.len());
            bytes[at] ^= 1 << rng.random_range(0..8);
        }
        1 if !bytes.is_empty() => {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random_range(0..256) as u8;
        }
        2 => drop(bytes.drain(start..end)),
        3 => bytes.truncate(start),
        4 => {
            let part = bytes[start..end].to_vec();
            let copies = 1 + rng.random_range(0..4) * rng.random_range(0..16);
            let part = part.repeat(copies.min(LONGEST / part.len().max(1)));
            drop(bytes.splice(start..start, part));
        }
        5 => {
            let other = &corpus[rng.random_range(0..corpus.len())];
            let (from, to) = span(rng, other);
            drop(bytes.splice(start..end, other[from..to].iter().copied()));
        }
        6 => {
            let word = if words.is_empty() { pick(rng, &TEXTS) } else { pick(rng, words) };
            drop(bytes.splice(start..start, word.bytes()));
        }
        7 => {
            // Replaces a number.
            let digits: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at].is_ascii_digit()).collect();
            if let Some(&at) = digits.get(rng.random_range(0..digits.len().max(1))) {
                let is_part = |byte: &u8| byte.is_ascii_digit() || b".eE+-".contains(byte);
                let from = at - bytes[..at].iter().rev().take_while(|byte| is_part(byte)).count();
                let to = at + bytes[at..].iter().take_while(|byte| is_part(byte)).count();
                drop(bytes.splice(from..to, pick(rng, &NUMBERS).bytes()));
            }
        }
        8 => {
            let quotes: Vec<usize> = (0..bytes.len()).filter(|&at| b"\"'".contains(&bytes[at])).collect();
            if quotes.len() > 1 {
                let first = rng.random_range(0..quotes.len() - 1);
                let text = if rng.random_range(0..2) == 0 && !words.is_empty() { pick(rng, words) } else { pick(rng, &TEXTS) };
                drop(bytes.splice(quotes[first] + 1..quotes[first + 1], text.bytes()));
            }
        }
        9 => {
            let bracket = pick(rng, &["[", "{", "(", "]", "}", "\""]);
            let many = 1 << rng.random_range(0..13);
            drop(bytes.splice(start..start, bracket.repeat(many).into_bytes()));
        }
        _ => {
            let noise: Vec<u8> = (0..1 + rng.random_range(0..16)).map(|_| rng.random_range(0..256) as u8).collect();
            drop(bytes.splice(start..end, noise));
        }
    }
}

/// Changes a node of the syntax tree. Returns `false` if the bytes cannot be parsed.
fn structural(rng: &mut ChaCha8Rng, bytes: &mut Vec<u8>, words: &[&str], syntax: Syntax) -> bool {
    match syntax {
        Syntax::Text => false,
        Syntax::Json => {
            // For JSON lines, change one line.
            let lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
            let whole = serde_json::from_slice::<Value>(bytes).ok().map(|tree| (tree, 0..bytes.len()));
            let of_line = |rng: &mut ChaCha8Rng| {
                let line = rng.random_range(0..lines.len());
                let start: usize = lines[..line].iter().map(|line| line.len() + 1).sum();
                let tree = serde_json::from_slice::<Value>(lines[line]).ok()?;
                Some((tree, start..start + lines[line].len()))
            };
            let Some((mut tree, place)) = whole.or_else(|| of_line(rng)) else { return false };
            change(rng, &mut tree, words);
            drop(bytes.splice(place, tree.to_string().into_bytes()));
            true
        }
        Syntax::Toml => {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let Ok(mut tree) = toml::from_str::<Value>(&text) else { return false };
            change(rng, &mut tree, words);
            let Ok(text) = toml::to_string(&tree) else { return false };
            *bytes = text.into_bytes();
            true
        }
        Syntax::Safetensors => {
            let Some((length, rest)) = bytes.split_first_chunk::<8>() else { return false };
            let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
            let Some(Ok(mut tree)) = rest.get(..length).map(serde_json::from_slice::<Value>) else { return false };
            change(rng, &mut tree, words);
            let header = tree.to_string().into_bytes();
            let data = rest[length..].to_vec();
            *bytes = (header.len() as u64).to_le_bytes().into_iter().chain(header).chain(data).collect();
            true
        }
    }
}

fn count(tree: &Value) -> usize {
    1 + match tree {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum::<usize>(),
        _ => 0,
    }
}

/// Returns the node with this number, in the order of [`count`].
fn node<'a>(tree: &'a mut Value, number: &mut usize) -> Option<&'a mut Value> {
    if *number == 0 {
        return Some(tree);
    }
    *number -= 1;
    match tree {
        Value::Array(items) => items.iter_mut().find_map(|item| node(item, number)),
        Value::Object(fields) => fields.values_mut().find_map(|value| node(value, number)),
        _ => None,
    }
}

fn change(rng: &mut ChaCha8Rng, tree: &mut Value, words: &[&str]) {
    let nodes = count(tree);
    let mut from = rng.random_range(0..nodes);
    let other = node(tree, &mut from).map_or(Value::Null, |node| node.clone());
    let mut to = rng.random_range(0..nodes);
    let Some(place) = node(tree, &mut to) else { return };
    let text = |rng: &mut ChaCha8Rng| {
        (if rng.random_range(0..2) == 0 && !words.is_empty() { pick(rng, words) } else { pick(rng, &TEXTS) }).to_owned()
    };
    match (rng.random_range(0..8), &mut *place) {
        (0, Value::Object(fields)) if !fields.is_empty() => {
            let name = fields.keys().nth(rng.random_range(0..fields.len())).cloned().unwrap_or_default();
            fields.remove(&name);
        }
        (1, Value::Object(fields)) => drop(fields.insert(text(rng), other)),
        (2, Value::Object(fields)) if !fields.is_empty() => {
            let name = fields.keys().nth(rng.random_range(0..fields.len())).cloned().unwrap_or_default();
            let value = fields.remove(&name).unwrap_or_default();
            fields.insert(text(rng), value);
        }
        (0..3, Value::Array(items)) if !items.is_empty() => {
            let at = rng.random_range(0..items.len());
            match rng.random_range(0..3) {
                0 => drop(items.remove(at)),
                1 => items.insert(at, other),
                _ => items.extend(vec![other; rng.random_range(0..64)]),
            }
        }
        (3, _) => *place = other,
        (4, _) => {
            let inner = place.take();
            *place = if rng.random_range(0..2) == 0 {
                Value::Array(vec![inner])
            } else {
                Value::Object(Map::from_iter([(text(rng), inner)]))
            };
        }
        (5, _) => {
            *place = [Value::Null, true.into(), false.into(), Value::Array(Vec::new()), Value::Object(Map::new())]
                [rng.random_range(0..5)]
            .clone();
        }
        (6, _) => *place = text(rng).into(),
        _ => *place = serde_json::from_str(pick(rng, &NUMBERS)).unwrap_or(Value::Null),
    }
}
