//! Words of arptables files: the numeric fields of an ARP header, each with a mask.
//!
//! The original tools read each field with another base: `--h-type 10` is sixteen, `--opcode 10` is
//! ten. They write hardware types and masks in a base that they do not read again; numbers that
//! are not the same in both bases are written here with `0x`.

use std::io::Write;

use crate::spec::{Names, arp_opcodes};
use crate::tree::Value;
use crate::value::{any_number, show};

/// A numeric field of an ARP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// `--h-length`: decimal.
    Length,
    /// `--opcode`: a name, or decimal.
    Opcode,
    /// `--h-type`: `Ethernet`, or hexadecimal.
    Hardware,
    /// `--proto-type`: `IPv4`, or a number as in C.
    Protocol,
}

impl Field {
    fn names(self) -> Names {
        match self {
            Field::Length => &[],
            Field::Opcode => arp_opcodes(),
            Field::Hardware => &[("Ethernet", 1)],
            Field::Protocol => &[("IPv4", 0x0800)],
        }
    }

    /// The value of all bits.
    pub fn full(self) -> u32 {
        match self {
            Field::Length => 0xff,
            _ => 0xffff,
        }
    }

    fn number(self, text: &str) -> Option<u64> {
        match self {
            Field::Length | Field::Opcode => decimal(text),
            Field::Hardware => hexadecimal(text),
            Field::Protocol => any_number(text),
        }
    }

    /// Reads `value` or `value/mask`.
    ///
    /// # Errors
    ///
    /// Not a name or a number, or too large.
    pub fn parse(self, word: &[u8]) -> Result<Value, String> {
        let text = std::str::from_utf8(word).unwrap_or_default();
        let (value, mask) = match text.split_once('/') {
            Some((value, mask)) => (value, Some(mask)),
            None => (text, None),
        };
        let named = self
            .names()
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(value))
            .map(|(_, number)| *number);
        let in_field = |number: Option<u64>| {
            number
                .filter(|number| *number <= u64::from(self.full()))
                .map(|number| number as u32)
                .ok_or_else(|| self.problem(word))
        };
        let value = in_field(named.or_else(|| self.number(value)))?;
        let mask = match mask {
            Some(mask) => in_field(self.number(mask))?,
            None => self.full(),
        };
        Ok(Value::Pair(value, mask))
    }

    fn problem(self, word: &[u8]) -> String {
        let form = match self {
            Field::Length => "0 to 255, decimal",
            Field::Opcode => "a name such as Request, or 0 to 65535, decimal",
            Field::Hardware => "Ethernet, or 0 to ffff, hexadecimal",
            Field::Protocol => "IPv4, or 0 to 0xffff",
        };
        format!("\"{}\" is not valid: write {form}", show(word))
    }

    /// Writes the value, and the mask unless it has all bits.
    pub fn write(self, value: u32, mask: u32, out: &mut Vec<u8>) {
        self.write_number(value, out);
        if mask != self.full() {
            out.push(b'/');
            self.write_number(mask, out);
        }
    }

    fn write_number(self, number: u32, out: &mut Vec<u8>) {
        let hexadecimal = match self {
            Field::Length | Field::Opcode => false,
            Field::Hardware => number >= 10,
            Field::Protocol => true,
        };
        let _ = if hexadecimal {
            write!(out, "0x{number:x}")
        } else {
            write!(out, "{number}")
        };
    }
}

/// A decimal number; leading blanks, a plus and zeros are permitted, as for `strtoul`.
pub fn decimal(text: &str) -> Option<u64> {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix('+').unwrap_or(text);
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(())?;
    text.parse().ok()
}

/// A hexadecimal number with or without `0x`.
pub fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .unwrap_or(text);
    digits
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then_some(())?;
    u64::from_str_radix(digits, 16).ok()
}
