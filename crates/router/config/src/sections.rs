//! From the file to the active configuration: each value is checked against its limits. A problem is
//! reported with its place.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fairpath_core::{MAX_FILTERS, MAX_FLOWS, MAX_SLOTS};
use fairpath_export::RowsWanted;
use fairpath_units::quantity;
use globset::Glob;
use toml::Spanned;

use super::checked::{
    AlertHook, Alerts, Config, Control, Filters, History, Metrics, Monitor, Rows, State, Subnets,
    Web,
};
use super::classes::{self, Classes, Named, Sources};
use super::file::{self, Given};
use super::problem::Problems;
use super::shape;
use super::values::Check;
use crate::filter::read_filter;
use crate::measure::{Hook, Method};

/// The file.
pub struct Source<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its content.
    pub text: &'a str,
    /// The directory of relative paths.
    pub directory: &'a Path,
}

/// Validates all values. The result is meaningless if there are problems; those of classes are
/// returned as text.
pub fn check(
    given: file::File,
    source: &Source<'_>,
    problems: &mut Problems<'_>,
) -> (Config, Vec<String>) {
    let uplinks = !given.monitor.uplinks.is_empty();
    let mut check = Check {
        problems,
        directory: source.directory.to_owned(),
        filtered: Vec::new(),
    };
    let files = check.files("class_files", given.class_files);
    let labels = given.labels.file.into_iter().collect();
    let labels = check.files("[labels] file", labels).pop();
    let places = shape::Places::of(given.shape.as_ref());
    let mut config = check.config(Rest {
        monitor: given.monitor,
        subnets: given.subnets,
        control: given.control,
        metrics: given.metrics,
        web: given.web,
        rows: given.rows,
        alerts: given.alerts,
        state: given.state,
        history: given.history,
        rules: given.rules,
        shape: given.shape,
    });
    let named = |(path, span): &(PathBuf, Range<usize>)| Named {
        path: path.clone(),
        span: span.clone(),
    };
    let sources = Sources {
        configuration: (source.name, source.text),
        entries: given.class,
        files: files.iter().map(named).collect(),
        labels: labels.as_ref().map(named),
        uplinks,
    };
    let filtered = std::mem::take(&mut check.filtered);
    match classes::read(sources, problems) {
        Ok(classes) => {
            shape::check_lines(
                config.shape.as_ref(),
                places.as_ref(),
                &classes.set,
                problems,
            );
            for (key, class, span) in filtered {
                if classes.set.get(&class).is_none() {
                    problems.note(span, format!("{key}: no class has the name {class:?}"));
                }
            }
            config.classes = classes;
            (config, Vec::new())
        }
        Err(reported) => (config, reported),
    }
}

/// All sections except classes and their files.
struct Rest {
    monitor: file::Monitor,
    subnets: file::Subnets,
    control: file::Control,
    metrics: file::Metrics,
    web: file::Web,
    rows: file::Rows,
    alerts: file::Alerts,
    state: file::State,
    history: file::History,
    rules: file::Rules,
    shape: Option<Spanned<file::Shape>>,
}

const DEFAULT_STATE: &str = "/var/lib/fairpath/state";
/// Ending of the file of the history.
const HISTORY_ENDING: &str = ".history";
/// Default and minimum of its size, bytes: an hour of 10,000 active rows takes 150 MB.
const MAX_HISTORY: u64 = 6 << 30;
const MIN_HISTORY: u64 = 256 << 20;
/// Default and minimum size of all Parquet files, bytes.
const MAX_PARQUET: u64 = 10 << 30;
const MIN_PARQUET: u64 = 16 << 20;
/// The kernel's limit of a name, without the terminating zero.
const MAX_INTERFACE_NAME: usize = 15;
/// Maximum number of words of a hook.
const MAX_HOOK_WORDS: usize = 64;

impl Check<'_, '_> {
    fn config(&mut self, given: Rest) -> Config {
        let (shape, monitor) = self.shape(given.shape, given.monitor);
        let state_file = self.state_file(given.state.file);
        Config {
            history: self.history(given.history, state_file.as_deref()),
            monitor: self.monitor(monitor),
            shape,
            subnets: self.subnets(given.subnets),
            control: Control {
                socket: self
                    .path("[control] socket", given.control.socket)
                    .unwrap_or_else(|| fairpath_history::snapshot::DEFAULT_SOCKET.into()),
                group: self.word("[control] group", given.control.group, "fairpath"),
            },
            metrics: Metrics {
                listen: self.listen("[metrics] listen", given.metrics.listen, None),
                max_series: self.number(
                    "[metrics] max_series",
                    given.metrics.max_series,
                    fairpath_export::MAX_SERIES as i64,
                    100..=10_000_000,
                ) as usize,
            },
            web: Web {
                listen: self.listen("[web] listen", given.web.listen, None),
                hosts: given
                    .web
                    .hosts
                    .into_iter()
                    .map(Spanned::into_inner)
                    .collect(),
            },
            rows: Rows {
                json: self.path("[rows] json", given.rows.json),
                parquet: self.path("[rows] parquet", given.rows.parquet),
                parquet_step: self.time(
                    "[rows] parquet_step",
                    given.rows.parquet_step,
                    60.0,
                    0.1..=86_400.0,
                ),
                parquet_max_bytes: self.bytes(
                    "[rows] parquet_max_bytes",
                    given.rows.parquet_max_bytes,
                    MAX_PARQUET,
                    MIN_PARQUET,
                ),
                which: self.which(given.rows.which),
            },
            alerts: self.alerts(given.alerts),
            state: State {
                file: state_file,
                save_every: self.time(
                    "[state] save_every",
                    given.state.save_every,
                    60.0,
                    1.0..=86_400.0,
                ),
            },
            rules: self.rules(given.rules),
            classes: Classes::default(),
        }
    }

    /// Paths of files, with their place in the configuration.
    fn files(&mut self, key: &str, given: Vec<Spanned<String>>) -> Vec<(PathBuf, Range<usize>)> {
        let mut files = Vec::new();
        for file in given {
            let span = file.span();
            files.extend(self.path(key, Some(file)).map(|path| (path, span)));
        }
        files
    }

    fn monitor(&mut self, given: file::Monitor) -> Monitor {
        let interfaces = match given.interfaces {
            Some(list) if !list.get_ref().is_empty() => {
                self.names("[monitor] interfaces", list.into_inner())
            }
            Some(list) => {
                self.wrong(
                    "[monitor] interfaces",
                    list.span(),
                    "is empty: name the interfaces to watch",
                );
                Vec::new()
            }
            None => {
                let text = "is missing: name the interfaces to watch, for example interfaces = [\"lan0\", \"ppp*\"]";
                self.wrong("[monitor] interfaces", 0..0, text);
                Vec::new()
            }
        };
        let slots = i64::from(MAX_SLOTS) - 1;
        Monitor {
            interfaces,
            uplinks: self.names("[monitor] uplinks", given.uplinks),
            hook: self.choice("[monitor] hook", given.hook, Hook::Tcx),
            method: self.choice("[monitor] method", given.method, Method::Hybrid),
            icmp: given.icmp.is_none_or(Spanned::into_inner),
            flows: self.number(
                "[monitor] flows",
                given.flows,
                65_536,
                8..=i64::from(MAX_FLOWS),
            ) as u32,
            flow_timeout: self.time(
                "[monitor] flow_timeout",
                given.flow_timeout,
                300.0,
                1.0..=86_400.0,
            ),
            interval: self.time("[monitor] interval", given.interval, 1.0, 0.1..=60.0),
            window: self.number("[monitor] window", given.window, 10, 1..=60) as usize,
            max_classes: given.max_classes.map(|given| {
                self.number("[monitor] max_classes", Some(given), 16, 16..=slots) as u32
            }),
            filters: self.filters(given.only, given.except),
        }
    }

    /// Names and patterns of interfaces, without duplicates.
    fn names(&mut self, key: &str, given: Vec<Spanned<String>>) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in given {
            let (span, name) = (name.span(), name.into_inner());
            let pattern = name.contains(['*', '?', '[', '{']);
            if pattern && Glob::new(&name).is_err() {
                self.wrong(
                    key,
                    span,
                    format!("pattern {name:?} is invalid: write \"ppp*\" or \"eth[0-3]\""),
                );
            } else if name.is_empty()
                || name.contains(['/', ' '])
                || !pattern && name.len() > MAX_INTERFACE_NAME
            {
                self.wrong(key, span, format!("{name:?} is not a valid interface name"));
            } else if names.contains(&name) {
                self.wrong(key, span, format!("{name:?} is listed twice"));
            } else {
                names.push(name);
            }
        }
        names
    }

    fn filters(&mut self, only: Vec<Spanned<String>>, except: Vec<Spanned<String>>) -> Filters {
        let mut filters = Filters::default();
        self.add_filters("[monitor] only", only, false, &mut filters);
        self.add_filters("[monitor] except", except, true, &mut filters);
        filters
    }

    fn add_filters(
        &mut self,
        key: &str,
        given: Vec<Spanned<String>>,
        except: bool,
        filters: &mut Filters,
    ) {
        for text in given {
            if let Some(class) = text.get_ref().strip_prefix("class ") {
                let classes = match except {
                    true => &mut filters.except_classes,
                    false => &mut filters.only_classes,
                };
                classes.push(class.to_owned());
                self.filtered
                    .push((key.to_owned(), class.to_owned(), text.span()));
                continue;
            }
            match read_filter(text.get_ref(), except) {
                Ok(filter) => filters.packets.push(filter),
                Err(why) => self.wrong(key, text.span(), why),
            }
            if filters.packets.len() == MAX_FILTERS + 1 {
                let many = format!("more than {MAX_FILTERS} prefixes and ports");
                self.wrong(key, text.span(), many);
            }
        }
    }

    fn subnets(&mut self, given: file::Subnets) -> Subnets {
        Subnets {
            v4: self.number("[subnets] v4", given.v4, 24, 8..=32) as u8,
            v6: self.number("[subnets] v6", given.v6, 48, 16..=64) as u8,
            max: self.number("[subnets] max", given.max, 256, 0..=16_384) as usize,
            idle: self.time("[subnets] idle", given.idle, 3600.0, 10.0..=86_400.0),
        }
    }

    fn which(&mut self, given: Given<String>) -> RowsWanted {
        self.read(
            "[rows] which",
            given,
            RowsWanted::Active,
            |word| match word.as_str() {
                "active" => Ok(RowsWanted::Active),
                "all" => Ok(RowsWanted::All),
                _ => Err(format!("{word:?} is invalid: write \"active\" or \"all\"")),
            },
        )
    }

    fn alerts(&mut self, given: file::Alerts) -> Alerts {
        let timeout = self.time(
            "[alerts] hook_timeout",
            given.hook_timeout,
            10.0,
            0.1..=600.0,
        );
        let hook = self.read("[alerts] hook", given.hook, None, |words| {
            let command: Vec<String> = words.into_iter().map(Spanned::into_inner).collect();
            match command.first() {
                None => Err("is empty: remove the key".to_owned()),
                Some(program) if !program.starts_with('/') => Err(format!(
                    "{program:?} is not an absolute path: hooks run without shell and PATH, for a shell write [\"/bin/sh\", \"-c\", \"...\"]"
                )),
                _ if command.len() > MAX_HOOK_WORDS => Err(format!("has more than {MAX_HOOK_WORDS} words")),
                _ => Ok(Some(Arc::new(AlertHook { command, timeout }))),
            }
        });
        Alerts {
            hook,
            json: self.path("[alerts] json", given.json),
            rtt_shift: self.real("[alerts] rtt_shift", given.rtt_shift, 1.5, 1.1..=100.0),
            rtt_floor: self.time("[alerts] rtt_floor", given.rtt_floor, 0.005, 0.0001..=60.0),
            loss: self.real("[alerts] loss", given.loss, 0.02, 0.0001..=1.0),
            rtt_p95: self.service_level(given.rtt_p95),
        }
    }

    /// A service level; `None` for "off", the default.
    fn service_level(&mut self, given: Given<String>) -> Option<Duration> {
        let given = given.filter(|text| text.get_ref() != "off");
        given.map(|text| self.time("[alerts] rtt_p95", Some(text), 0.0, 0.0001..=3600.0))
    }

    /// A size.
    fn bytes(&mut self, key: &str, given: Given<String>, default: u64, minimum: u64) -> u64 {
        self.read(key, given, default, |text| {
            let bytes = quantity::read(&text, "bytes").map_err(|error| error.to_string())?;
            match bytes >= minimum {
                true => Ok(bytes),
                false => Err(format!(
                    "{text} is too small: at least {}",
                    quantity::written(minimum, "bytes")
                )),
            }
        })
    }

    /// The default file is that of the state, with an ending: none without state.
    fn history(&mut self, given: file::History, state: Option<&Path>) -> History {
        let file = match given.file {
            None => state.map(|state| {
                let mut name = state.as_os_str().to_owned();
                name.push(HISTORY_ENDING);
                name.into()
            }),
            Some(text) if text.get_ref() == "off" => None,
            given => self.path("[history] file", given),
        };
        let max_bytes = self.bytes(
            "[history] max_bytes",
            given.max_bytes,
            MAX_HISTORY,
            MIN_HISTORY,
        );
        History { file, max_bytes }
    }

    fn state_file(&mut self, given: Given<String>) -> Option<PathBuf> {
        match given {
            None => Some(DEFAULT_STATE.into()),
            Some(text) if text.get_ref() == "off" => None,
            given => self.path("[state] file", given),
        }
    }
}
