//! The text of LVM2's metadata (`libdm/libdm-config.c`): sections in braces, `key = value`, numbers, strings in double
//! quotes, lists in brackets, comments from `#` to the end of the line.

use std::collections::BTreeMap;

/// How deep sections and lists may lie in each other; real texts need four.
const MOST_DEPTH: u32 = 8;

/// What a text says that is not as it should be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line} of the metadata: {what}")]
pub(super) struct Fault {
    line: usize,
    what: String,
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Number(i64),
    Text(String),
    List(Vec<Value>),
}

/// What a key stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Value(Value),
    Section(Section),
}

/// A section; no key is there twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Section {
    entries: BTreeMap<String, Entry>,
}

impl Section {
    /// The sections in this one, by their names.
    pub(super) fn sections(&self) -> impl Iterator<Item = (&str, &Section)> {
        self.entries.iter().filter_map(|(name, entry)| match entry {
            Entry::Section(section) => Some((name.as_str(), section)),
            Entry::Value(_) => None,
        })
    }

    /// The section of this name.
    pub(super) fn section(&self, name: &str) -> Option<&Section> {
        match self.entries.get(name)? {
            Entry::Section(section) => Some(section),
            Entry::Value(_) => None,
        }
    }

    /// The values, by their keys.
    pub(super) fn values(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().filter_map(|(name, entry)| match entry {
            Entry::Value(value) => Some((name.as_str(), value)),
            Entry::Section(_) => None,
        })
    }

    /// The value of this key.
    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        self.values().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// A number that is not negative.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        match self.value(name)? {
            Value::Number(number) => u64::try_from(*number).ok(),
            Value::Text(_) | Value::List(_) => None,
        }
    }

    /// A string.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.value(name)? {
            Value::Text(text) => Some(text),
            Value::Number(_) | Value::List(_) => None,
        }
    }

    /// A list; none where the key is missing.
    pub(super) fn list(&self, name: &str) -> Option<&[Value]> {
        match self.value(name)? {
            Value::List(list) => Some(list),
            Value::Number(_) | Value::Text(_) => None,
        }
    }
}

/// The root of a text.
pub(super) fn parse(text: &[u8]) -> Result<Section, Fault> {
    // The text ends with a zero byte, which its size counts.
    let text = text.strip_suffix(b"\0").unwrap_or(text);
    let mut reader = Reader { text, at: 0 };
    let root = reader.section(0)?;
    if reader.peek().is_some() {
        return Err(reader.fault("a brace is closed that was never opened"));
    }
    Ok(root)
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn fault(&self, what: impl Into<String>) -> Fault {
        let before = self.text.iter().take(self.at);
        Fault { line: before.filter(|byte| **byte == b'\n').count().saturating_add(1), what: what.into() }
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.text.get(self.at).copied()?;
        self.at = self.at.saturating_add(1);
        Some(byte)
    }

    /// The next byte that means something.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = self.text.get(self.at).copied()?;
            if byte == b'#' {
                let rest = self.text.get(self.at..).unwrap_or_default();
                let line = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                self.at = self.at.saturating_add(line);
            } else if byte.is_ascii_whitespace() {
                self.at = self.at.saturating_add(1);
            } else {
                return Some(byte);
            }
        }
    }

    fn expect(&mut self, wanted: u8) -> Result<(), Fault> {
        if self.peek() == Some(wanted) {
            self.at = self.at.saturating_add(1);
            return Ok(());
        }
        Err(self.fault(format!("expected '{}'", char::from(wanted))))
    }

    /// Everything up to a closing brace or the end.
    fn section(&mut self, depth: u32) -> Result<Section, Fault> {
        if depth > MOST_DEPTH {
            return Err(self.fault("its sections lie too deep in each other"));
        }
        let mut section = Section::default();
        while let Some(byte) = self.peek() {
            if byte == b'}' {
                break;
            }
            let key = self.key()?;
            let entry = if self.peek() == Some(b'{') {
                self.expect(b'{')?;
                let inner = self.section(depth.saturating_add(1))?;
                self.expect(b'}')?;
                Entry::Section(inner)
            } else {
                self.expect(b'=')?;
                Entry::Value(self.value(depth)?)
            };
            if section.entries.insert(key.clone(), entry).is_some() {
                return Err(self.fault(format!("{key} is there twice")));
            }
        }
        Ok(section)
    }

    fn key(&mut self) -> Result<String, Fault> {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(byte);
        let rest = self.text.get(self.at..).unwrap_or_default();
        let len = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let word = rest.get(..len).unwrap_or_default();
        if word.is_empty() {
            return Err(self.fault("expected a name"));
        }
        self.at = self.at.saturating_add(len);
        Ok(String::from_utf8_lossy(word).into_owned())
    }

    fn value(&mut self, depth: u32) -> Result<Value, Fault> {
        match self.peek() {
            Some(b'"') => self.string().map(Value::Text),
            Some(b'[') => self.list(depth),
            _ => self.number(),
        }
    }

    fn string(&mut self) -> Result<String, Fault> {
        self.expect(b'"')?;
        let mut bytes = Vec::new();
        loop {
            match self.next() {
                Some(b'"') => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
                Some(b'\\') => bytes.extend(self.next()),
                Some(byte) => bytes.push(byte),
                None => return Err(self.fault("a string has no end")),
            }
        }
    }

    fn list(&mut self, depth: u32) -> Result<Value, Fault> {
        if depth > MOST_DEPTH {
            return Err(self.fault("its lists lie too deep in each other"));
        }
        self.expect(b'[')?;
        let mut list = Vec::new();
        loop {
            if self.peek() == Some(b']') {
                break;
            }
            list.push(self.value(depth.saturating_add(1))?);
            if self.peek() != Some(b',') {
                break;
            }
            self.expect(b',')?;
        }
        self.expect(b']')?;
        Ok(Value::List(list))
    }

    fn number(&mut self) -> Result<Value, Fault> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let len = rest.iter().position(|byte| !(byte.is_ascii_digit() || *byte == b'-')).unwrap_or(rest.len());
        let digits = String::from_utf8_lossy(rest.get(..len).unwrap_or_default());
        let number = digits.parse().map_err(|_| self.fault("expected a number, a string or a list"))?;
        self.at = self.at.saturating_add(len);
        Ok(Value::Number(number))
    }
}
