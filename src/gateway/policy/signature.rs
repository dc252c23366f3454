//! The business signature: the parts of a JSON body that identify a request, by JSON pointers (RFC
//! 6901).
//!
//! A field that is left out counts as absent, which is not `null`. A body without a lossless
//! canonical form has no signature: raw bytes are never used instead.

use super::canonical::{self, RawOnly};

/// Selected fields of a JSON body. Method and target always count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// These fields, and all below them.
    Include(Vec<Pointer>),
    /// All fields except these and those below them.
    Exclude(Vec<Pointer>),
}

/// Reason why a request has no business signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsigned {
    /// Its Content-Type is not JSON.
    #[error("the Content-Type is not JSON")]
    NotJsonType,
    /// Its body has no lossless canonical form.
    #[error("{0}")]
    RawOnly(RawOnly),
}

/// A JSON pointer in which `*` stands for every element of an array and every member of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    tokens: Vec<Token>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Each,
    /// A member by its name, spelled as the canonical form spells it; an element by its index.
    One {
        member: Vec<u8>,
        index: Option<usize>,
    },
}

impl Pointer {
    /// Reads a pointer such as `/amount` or `/items/*/note`; `~1` is a slash, `~0` a tilde. An
    /// error tells the correct form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!("{text:?} is no JSON pointer to a field: {why}, as in \"/amount\" or \"/items/*/note\"")
        };
        let Some(inner) = text.strip_prefix('/') else { return Err(wrong("it must begin with '/'")) };
        let token = |token: &str| {
            if token == "*" {
                return Ok(Token::Each);
            }
            let tildes = token.matches('~').count();
            if tildes != token.matches("~0").count() + token.matches("~1").count() {
                return Err(wrong("'~' must be written \"~0\", and '/' in a name \"~1\""));
            }
            let name = token.replace("~1", "/").replace("~0", "~");
            let mut member = Vec::new();
            canonical::write_string(&mut member, &name);
            let index = name.parse().ok().filter(|index: &usize| index.to_string() == name);
            Ok(Token::One { member, index })
        };
        let tokens = inner.split('/').map(token).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), tokens })
    }

    /// The pointer as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Selection {
    /// The rule as a text that two equal rules share: the fields in order of their spelling.
    pub fn canonical(&self) -> String {
        let (word, pointers) = match self {
            Self::Include(pointers) => ("include", pointers),
            Self::Exclude(pointers) => ("exclude", pointers),
        };
        let mut texts: Vec<&str> = pointers.iter().map(Pointer::as_str).collect();
        texts.sort_unstable();
        format!("{word}\n{}", texts.join("\n"))
    }

    /// The selected parts of this body: two select the same bytes exactly if they hold the same
    /// values in the same fields. An error: it has no lossless canonical form.
    pub fn select(&self, body: &[u8]) -> Result<Vec<u8>, RawOnly> {
        let text = canonical::canonical_json(body)?;
        let mut walk = Walk { text: &text, at: 0, path: Vec::new(), out: Vec::new() };
        match self {
            Self::Include(pointers) => walk.pick(0, &pointers.iter().collect::<Vec<_>>()),
            Self::Exclude(pointers) => walk.prune(0, &pointers.iter().collect::<Vec<_>>()),
        }
        Ok(walk.out)
    }
}

/// Place of a child: a member's canonical name, quotes included, or an element's index.
#[derive(Clone, Copy)]
enum Step<'a> {
    Member(&'a [u8]),
    Element(usize),
}

impl Step<'_> {
    fn is(self, token: &Token) -> bool {
        match (token, self) {
            (Token::Each, Step::Member(_) | Step::Element(_)) => true,
            (Token::One { member, index: _ }, Step::Member(name)) => member == name,
            (Token::One { member: _, index }, Step::Element(at)) => *index == Some(at),
        }
    }
}

/// The pointers that lead through this child at this depth, and if one of them ends there.
fn through<'p>(alive: &[&'p Pointer], depth: usize, step: Step<'_>) -> (Vec<&'p Pointer>, bool) {
    let leads = |pointer: &&&Pointer| pointer.tokens.get(depth).is_some_and(|token| step.is(token));
    let next: Vec<&Pointer> = alive.iter().filter(leads).copied().collect();
    let ends = next.iter().any(|pointer| pointer.tokens.len() == depth + 1);
    (next, ends)
}

/// Reads canonical text: well formed, without blanks and not deep.
struct Walk<'t> {
    text: &'t [u8],
    at: usize,
    path: Vec<u8>,
    out: Vec<u8>,
}

impl<'t> Walk<'t> {
    /// Appends each selected field as a line: place, `=`, value. Canonical text has no line ends.
    fn pick(&mut self, depth: usize, alive: &[&Pointer]) {
        self.children(|walk, step| {
            let (next, ends) = through(alive, depth, step);
            let outer = walk.path.len();
            match step {
                Step::Member(name) => walk.path.extend_from_slice(name),
                Step::Element(at) => walk.path.extend_from_slice(at.to_string().as_bytes()),
            }
            walk.path.push(b'/');
            if ends {
                let value = walk.value();
                walk.out.extend_from_slice(&walk.path);
                walk.out.push(b'=');
                walk.out.extend_from_slice(value);
                walk.out.push(b'\n');
            } else if next.is_empty() {
                walk.value();
            } else {
                walk.pick(depth + 1, &next);
            }
            walk.path.truncate(outer);
        });
    }

    /// Appends the value without its selected fields.
    fn prune(&mut self, depth: usize, alive: &[&Pointer]) {
        let Some((open, close)) = self.brackets() else {
            let value = self.value();
            return self.out.extend_from_slice(value);
        };
        self.out.push(open);
        let mut first = true;
        self.children(|walk, step| {
            let (next, ends) = through(alive, depth, step);
            if ends {
                walk.value();
                return;
            }
            if !std::mem::replace(&mut first, false) {
                walk.out.push(b',');
            }
            if let Step::Member(name) = step {
                walk.out.extend_from_slice(name);
                walk.out.push(b':');
            }
            if next.is_empty() {
                let value = walk.value();
                walk.out.extend_from_slice(value);
            } else {
                walk.prune(depth + 1, &next);
            }
        });
        self.out.push(close);
    }

    /// Steps through the children here, or over a scalar. `each` steps over the child's value.
    fn children(&mut self, mut each: impl FnMut(&mut Self, Step<'t>)) {
        let Some((open, close)) = self.brackets() else {
            self.value();
            return;
        };
        self.at += 1;
        let mut index = 0;
        while self.text.get(self.at).is_some_and(|byte| *byte != close) {
            self.at += usize::from(self.text[self.at] == b',');
            if open == b'{' {
                let name = self.value();
                self.at += 1;
                each(self, Step::Member(name));
            } else {
                each(self, Step::Element(index));
            }
            index += 1;
        }
        self.at += 1;
    }

    /// The brackets of the container here, if one begins here.
    fn brackets(&self) -> Option<(u8, u8)> {
        match self.text.get(self.at)? {
            b'{' => Some((b'{', b'}')),
            b'[' => Some((b'[', b']')),
            _ => None,
        }
    }

    /// Steps over one whole value, or a member's name, and gives its text.
    fn value(&mut self) -> &'t [u8] {
        let (start, mut open, mut quoted) = (self.at, 0_usize, false);
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'"' => quoted = !quoted,
                // The byte after it is escaped.
                b'\\' => self.at += 1,
                _ if quoted => {}
                b'{' | b'[' => open += 1,
                b',' | b':' | b'}' | b']' if open == 0 => break,
                b'}' | b']' => open -= 1,
                _ => {}
            }
            self.at += 1;
        }
        &self.text[start..self.at]
    }
}

#[cfg(test)]
mod tests;
