//! The expression of `-m u32`: `location = ranges && location = ranges`.

use std::fmt::Write as _;

/// Most tests of an expression, steps of a location, ranges of a test (as in the kernel).
const MAX_TESTS: usize = 10;
const MAX_STEPS: usize = 10;
const MAX_RANGES: usize = 10;

/// A step after the first offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Location {
    /// Keeps the bits of a mask.
    And(u32),
    /// Shifts to the left.
    ShiftLeft(u32),
    /// Shifts to the right.
    ShiftRight(u32),
    /// Moves the start of offsets by the value so far, and reads at the number.
    At(u32),
}

/// One `location = ranges`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct U32Word {
    /// Offset of the first word.
    pub offset: u32,
    /// Steps after it.
    pub steps: Vec<Location>,
    /// Accepted ranges.
    pub ranges: Vec<(u32, u32)>,
}

/// The whole expression: all tests must hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct U32Test {
    /// Tests that must hold.
    pub tests: Vec<U32Word>,
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn blank(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn take(&mut self, word: &str) -> bool {
        self.blank();
        let found = self.text[self.at..].starts_with(word.as_bytes());
        if found {
            self.at += word.len();
        }
        found
    }

    fn number(&mut self) -> Result<u32, String> {
        self.blank();
        let rest = &self.text[self.at..];
        let sign = usize::from(rest.first() == Some(&b'+'));
        let digits = rest[sign..].iter();
        let length = sign
            + digits
                .take_while(|byte| byte.is_ascii_alphanumeric())
                .count();
        let word = std::str::from_utf8(&rest[..length]).unwrap_or_default();
        let number = super::super::value::any_number(word)
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| format!("u32: no number at byte {} of the expression", self.at + 1))?;
        self.at += length;
        Ok(number)
    }
}

impl U32Test {
    /// Reads an expression.
    ///
    /// # Errors
    ///
    /// The place in the expression, and the missing part.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let mut scan = Scan { text, at: 0 };
        let mut tests = Vec::new();
        loop {
            if tests.len() == MAX_TESTS {
                return Err(format!("u32: more than {MAX_TESTS} tests"));
            }
            tests.push(word(&mut scan)?);
            scan.blank();
            if scan.at == text.len() {
                return Ok(Self { tests });
            }
            if !scan.take("&&") {
                return Err(format!(
                    "u32: \"&&\" expected at byte {} of the expression",
                    scan.at + 1
                ));
            }
        }
    }

    /// The canonical text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (at, test) in self.tests.iter().enumerate() {
            if at > 0 {
                out.push_str("&&");
            }
            let _ = write!(out, "0x{:x}", test.offset);
            for step in &test.steps {
                let _ = match step {
                    Location::And(number) => write!(out, "&0x{number:x}"),
                    Location::ShiftLeft(number) => write!(out, "<<0x{number:x}"),
                    Location::ShiftRight(number) => write!(out, ">>0x{number:x}"),
                    Location::At(number) => write!(out, "@0x{number:x}"),
                };
            }
            out.push('=');
            for (at, (first, last)) in test.ranges.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                let _ = write!(out, "0x{first:x}");
                if last != first {
                    let _ = write!(out, ":0x{last:x}");
                }
            }
        }
        out
    }
}

fn word(scan: &mut Scan) -> Result<U32Word, String> {
    let offset = scan.number()?;
    let mut steps = Vec::new();
    while !scan.take("=") {
        if steps.len() == MAX_STEPS {
            return Err(format!("u32: more than {MAX_STEPS} steps of a location"));
        }
        let step: fn(u32) -> Location = if scan.take("<<") {
            Location::ShiftLeft
        } else if scan.take(">>") {
            Location::ShiftRight
        } else if scan.take("&") {
            Location::And
        } else if scan.take("@") {
            Location::At
        } else {
            return Err(format!(
                "u32: \"&\", \"<<\", \">>\", \"@\" or \"=\" expected at byte {} of the expression",
                scan.at + 1
            ));
        };
        steps.push(step(scan.number()?));
    }
    let mut ranges = Vec::new();
    loop {
        if ranges.len() == MAX_RANGES {
            return Err(format!("u32: more than {MAX_RANGES} ranges"));
        }
        let first = scan.number()?;
        let last = if scan.take(":") {
            scan.number()?
        } else {
            first
        };
        ranges.push((first, last));
        if !scan.take(",") {
            return Ok(U32Word {
                offset,
                steps,
                ranges,
            });
        }
    }
}
