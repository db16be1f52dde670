//! Scenario files: what their heads declare. `tests/vm/README.md` is the manual.
//!
//! ```text
//! # kernels: floor newest     which kernels it makes a promise about
//! # needs: fairpath ip tc     programs it runs; one that the host lacks makes it a skip
//! # user-space: debian         Debian's with systemd and dpkg; without this line, busybox
//! # timeout: 60               seconds in the guest
//! ```

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::Which;

/// A scenario without a `timeout` line gets this long.
const DEFAULT_TIMEOUT_S: u64 = 60;

/// The user space around the scenario in the guest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UserSpace {
    /// busybox and the programs that scenarios need.
    #[default]
    Busybox,
    /// Debian's, with systemd and dpkg, and the package under test.
    Debian,
}

impl UserSpace {
    pub const ALL: [UserSpace; 2] = [UserSpace::Busybox, UserSpace::Debian];

    pub fn name(self) -> &'static str {
        match self {
            UserSpace::Busybox => "busybox",
            UserSpace::Debian => "debian",
        }
    }
}

/// One script of `tests/vm/scenarios`.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub name: String,
    pub kernels: Vec<Which>,
    pub needs: Vec<String>,
    /// C files of tests/vm/policies, packed as objects.
    pub policies: Vec<String>,
    /// Directories of examples/, each built to a program and an object.
    pub examples: Vec<String>,
    pub user_space: UserSpace,
    pub timeout: Duration,
    pub script: String,
}

impl Scenario {
    /// All scenarios of a directory by name, or those called `only`.
    pub fn load_all(dir: &Path, only: &[String]) -> Result<Vec<Scenario>> {
        let mut scenarios = Vec::new();
        for entry in fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))? {
            let path = entry?.path();
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.extension().is_some_and(|ext| ext == "sh")
                && (only.is_empty() || only.contains(&name))
            {
                let script = fs::read_to_string(&path)
                    .with_context(|| format!("read {}", path.display()))?;
                scenarios.push(
                    parse(&name, script).with_context(|| format!("scenario {}", path.display()))?,
                );
            }
        }
        ensure!(!scenarios.is_empty(), "no scenario in {}", dir.display());
        for name in only {
            ensure!(
                scenarios.iter().any(|scenario| scenario.name == *name),
                "no scenario {name:?} in {}",
                dir.display()
            );
        }
        scenarios.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(scenarios)
    }
}

fn parse(name: &str, script: String) -> Result<Scenario> {
    // The name travels on the kernel's command line.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    ensure!(
        name.chars().all(plain),
        "its name may hold letters, digits, - and _ only"
    );
    let mut scenario = Scenario {
        name: name.to_string(),
        kernels: Vec::new(),
        needs: Vec::new(),
        policies: Vec::new(),
        examples: Vec::new(),
        user_space: UserSpace::default(),
        timeout: Duration::from_secs(DEFAULT_TIMEOUT_S),
        script: String::new(),
    };
    for line in script.lines().take_while(|line| line.starts_with('#')) {
        let Some((key, value)) = line.trim_start_matches('#').trim().split_once(": ") else {
            continue;
        };
        match key {
            "kernels" => {
                scenario.kernels = value
                    .split_whitespace()
                    .map(kernel)
                    .collect::<Result<_>>()?
            }
            "needs" => scenario.needs = value.split_whitespace().map(str::to_string).collect(),
            "policies" => {
                scenario.policies = value.split_whitespace().map(str::to_string).collect()
            }
            "examples" => {
                scenario.examples = value.split_whitespace().map(str::to_string).collect()
            }
            "user-space" => scenario.user_space = user_space(value.trim())?,
            "timeout" => {
                scenario.timeout = Duration::from_secs(
                    value
                        .trim()
                        .parse()
                        .context("timeout is not a number of seconds")?,
                )
            }
            _ => {}
        }
    }
    ensure!(
        !scenario.kernels.is_empty(),
        "its head has no \"# kernels: floor newest\" line"
    );
    scenario.script = script;
    Ok(scenario)
}

fn kernel(name: &str) -> Result<Which> {
    match Which::ALL.iter().find(|which| which.name() == name) {
        Some(which) => Ok(*which),
        None => bail!("unknown kernel {name:?}; there are floor and newest"),
    }
}

fn user_space(name: &str) -> Result<UserSpace> {
    match UserSpace::ALL.iter().find(|space| space.name() == name) {
        Some(space) => Ok(*space),
        None => bail!("unknown user space {name:?}; there are busybox and debian"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_declares_kernels_needs_and_timeout() {
        let script = "# Netem delays.\n#\n# kernels: newest floor\n# needs: tc ping\n# timeout: 7\n\n# kernels: none\n";
        let scenario = parse("netem", script.to_string()).unwrap();
        assert_eq!(scenario.kernels, [Which::Newest, Which::Floor]);
        assert_eq!(scenario.needs, ["tc", "ping"]);
        assert_eq!(scenario.timeout, Duration::from_secs(7));
    }

    #[test]
    fn head_names_user_space_and_usual_busybox() {
        let of = |head: &str| parse("x", format!("# kernels: floor\n{head}"));
        assert_eq!(of("").unwrap().user_space, UserSpace::Busybox);
        let debian = of("# user-space: debian\n").unwrap();
        assert_eq!(debian.user_space, UserSpace::Debian);
        assert!(of("# user-space: other\n").is_err());
    }

    #[test]
    fn head_without_or_with_unknown_kernels_is_refused() {
        assert!(parse("x", "# needs: tc\n".to_string()).is_err());
        assert!(parse("x", "# kernels: oldest\n".to_string()).is_err());
        assert!(parse("x y", "# kernels: floor\n".to_string()).is_err());
    }
}
