//! Reading of one value, with its type and its limits.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use super::file::Given;
use super::problem::Problems;
use crate::duration::parse_duration;

/// The values of one file.
pub struct Check<'p, 'f> {
    /// The problems so far.
    pub problems: &'p mut Problems<'f>,
    /// Base of relative paths.
    pub directory: PathBuf,
    /// Classes that filters name, each with its key and place.
    pub filtered: Vec<(String, String, Range<usize>)>,
}

impl Check<'_, '_> {
    /// Adds a problem of the value of a key.
    pub fn wrong(&mut self, key: &str, span: Range<usize>, text: impl Display) {
        self.problems.note(span, format!("{key}: {text}"));
    }

    /// Reads a value, or returns the default if it is missing or invalid.
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
                    "{number} is out of range: {} to {}",
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
                    "{number} is out of range: {} to {}",
                    range.start(),
                    range.end()
                )),
            }
        })
    }

    /// A time; default and limits are in seconds.
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
                    "{text} is out of range: {}s to {}s",
                    range.start(),
                    range.end()
                )),
            }
        })
    }

    /// One of the values of a command-line option.
    pub fn choice<T: ValueEnum>(&mut self, key: &str, given: Given<String>, default: T) -> T {
        self.read(key, given, default, |word| {
            T::from_str(&word, false).map_err(|_| {
                let valid: Vec<String> = T::value_variants()
                    .iter()
                    .filter_map(|value| {
                        Some(format!("{:?}", value.to_possible_value()?.get_name()))
                    })
                    .collect();
                format!("{word:?} is invalid: write {}", valid.join(", "))
            })
        })
    }

    /// A path, relative to the directory of the configuration.
    pub fn path(&mut self, key: &str, given: Given<String>) -> Option<PathBuf> {
        let directory = self.directory.clone();
        self.read(key, given, None, |text| match text.as_str() {
            "" => Err("the path is empty: remove the key".into()),
            _ => Ok(Some(directory.join(text))),
        })
    }

    /// A text that is not empty.
    pub fn word(&mut self, key: &str, given: Given<String>, default: &str) -> String {
        self.read(key, given, default.to_owned(), |text| {
            match text.is_empty() {
                true => Err("is empty: remove the key".into()),
                false => Ok(text),
            }
        })
    }

    /// Address and port; `None` for "off".
    pub fn listen(
        &mut self,
        key: &str,
        given: Given<String>,
        default: Option<SocketAddr>,
    ) -> Option<SocketAddr> {
        self.read(key, given, default, |text| match text.as_str() {
            "off" => Ok(None),
            _ => text.parse().map(Some).map_err(|_| {
                format!("{text:?} is not an address with port: write \"127.0.0.1:9909\", \"[::1]:9909\" or \"off\"")
            }),
        })
    }
}
