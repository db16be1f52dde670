//! Reading one value: its type, its limits, and what is said where it is wrong.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use super::file::Given;
use super::problem::Problems;
use crate::duration::parse_duration;

/// The values of one file, as they are read.
pub struct Check<'p, 'f> {
    /// What is wrong so far.
    pub problems: &'p mut Problems<'f>,
    /// What relative paths begin at.
    pub directory: PathBuf,
    /// Classes that filters name, by whose key and where.
    pub filtered: Vec<(String, String, Range<usize>)>,
}

impl Check<'_, '_> {
    /// Notes that a key's value is wrong, and how.
    pub fn wrong(&mut self, key: &str, span: Range<usize>, text: impl Display) {
        self.problems.note(span, format!("{key}: {text}"));
    }

    /// Reads a value, or takes the default where there is none or a wrong one.
    pub fn read<T, U>(
        &mut self,
        key: &str,
        given: Given<T>,
        default: U,
        read: impl FnOnce(T) -> Result<U, String>,
    ) -> U {
        let Some(given) = given else { return default };
        let span = given.span();
        read(given.into_inner()).unwrap_or_else(|text| {
            self.wrong(key, span, text);
            default
        })
    }

    /// A whole number within limits.
    pub fn number(
        &mut self,
        key: &str,
        given: Given<i64>,
        default: i64,
        range: RangeInclusive<i64>,
    ) -> i64 {
        self.read(key, given, default, |number| {
            match range.contains(&number) {
                true => Ok(number),
                false => Err(format!(
                    "{number} is not within {} to {}",
                    range.start(),
                    range.end()
                )),
            }
        })
    }

    /// A number within limits.
    pub fn real(
        &mut self,
        key: &str,
        given: Given<f64>,
        default: f64,
        range: RangeInclusive<f64>,
    ) -> f64 {
        self.read(key, given, default, |number| {
            match range.contains(&number) {
                true => Ok(number),
                false => Err(format!(
                    "{number} is not within {} to {}",
                    range.start(),
                    range.end()
                )),
            }
        })
    }

    /// Seconds: the default and the limits.
    pub fn time(
        &mut self,
        key: &str,
        given: Given<String>,
        default: f64,
        range: RangeInclusive<f64>,
    ) -> Duration {
        let default = Duration::from_secs_f64(default);
        self.read(key, given, default, |text| {
            let time = parse_duration(&text)?;
            match range.contains(&time.as_secs_f64()) {
                true => Ok(time),
                false => Err(format!(
                    "{text} is not within {} to {} s",
                    range.start(),
                    range.end()
                )),
            }
        })
    }

    /// One of the words that a command line knows too.
    pub fn choice<T: ValueEnum>(&mut self, key: &str, given: Given<String>, default: T) -> T {
        self.read(key, given, default, |word| {
            T::from_str(&word, false).map_err(|_| {
                let known: Vec<String> = T::value_variants()
                    .iter()
                    .filter_map(|known| {
                        Some(format!("{:?}", known.to_possible_value()?.get_name()))
                    })
                    .collect();
                format!("{word:?} is none of {}", known.join(", "))
            })
        })
    }

    /// A path; a relative one begins at the configuration's directory.
    pub fn path(&mut self, key: &str, given: Given<String>) -> Option<PathBuf> {
        let directory = self.directory.clone();
        self.read(key, given, None, |text| match text.as_str() {
            "" => Err("an empty path; leave the key out".into()),
            _ => Ok(Some(directory.join(text))),
        })
    }

    /// A text that is not empty.
    pub fn word(&mut self, key: &str, given: Given<String>, default: &str) -> String {
        self.read(key, given, default.to_owned(), |text| {
            match text.is_empty() {
                true => Err("is empty; leave the key out".into()),
                false => Ok(text),
            }
        })
    }

    /// An address and port; `None` for "off".
    pub fn listen(
        &mut self,
        key: &str,
        given: Given<String>,
        default: Option<SocketAddr>,
    ) -> Option<SocketAddr> {
        self.read(key, given, default, |text| match text.as_str() {
            "off" => Ok(None),
            _ => text.parse().map(Some).map_err(|_| {
                format!("{text:?} is no address and port; say \"127.0.0.1:9909\", \"[::1]:9909\" or \"off\"")
            }),
        })
    }
}
