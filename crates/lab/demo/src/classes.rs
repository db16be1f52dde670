//! The same traffic by class: `fairpath run` on the router in addition to `fairpath rtt`, and its table.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use fairpath_testbed::{Process, Router};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::check::Check;
use crate::lab::{Leg, binary};

/// Time to load, to answer and to stop, on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(30);
/// The class that both others lie below.
const SITE: &str = "site";
const COLUMNS: &str = "100";

/// The daemon on the router.
pub struct Classes {
    process: Process,
    folder: PathBuf,
}

/// Its results at the end.
#[derive(Default)]
pub struct Reported {
    /// `fairpath top --once`.
    pub table: String,
    /// The checks of the configured delay of each leg of the site.
    pub checks: Vec<Check>,
}

impl Classes {
    /// Starts the daemon on the router, its files in `folder`.
    pub fn start(net: &Router, folder: &Path) -> anyhow::Result<Classes> {
        let folder = folder.canonicalize()?;
        let file = folder.join("fairpath.toml");
        fs::write(&file, configuration()).with_context(|| format!("write {file:?}"))?;
        let mut command = net.router.command_without_sysfs(binary());
        command.args(["run", "--config"]).arg(&file);
        let process = net.router.spawn(command)?;
        process
            .wait_stderr("ready after", DEADLINE)
            .context("start fairpath run on the router")?;
        Ok(Classes { process, folder })
    }

    /// The printed table, and its checks; then the daemon ends.
    pub fn finish(self, net: &Router) -> anyhow::Result<Reported> {
        let table = self.top(net, "text")?;
        let snapshot = self.top(net, "json")?;
        let snapshot: Value = serde_json::from_str(&snapshot).context("read top's snapshot")?;
        self.process.signal(Signal::SIGTERM);
        self.process.finish(DEADLINE).context("end fairpath run")?;
        let rows = snapshot["rows"].as_array();
        let site = rows.and_then(|rows| rows.iter().find(|row| row["name"] == SITE));
        let min = |leg: &str| {
            let ns = site.and_then(|site| site[leg]["min_rtt_ns"].as_u64());
            ns.map(|ns| ns as f64 / 1e6)
        };
        let check = |leg: Leg, key: &str| {
            let check = Check::leg(min(key), leg.configured_ms());
            Check::new(
                check.holds,
                format!("class {SITE:?} {key}: {}", check.claim),
            )
        };
        Ok(Reported {
            table,
            checks: vec![check(Leg::Lan, "inside"), check(Leg::Wan, "outside")],
        })
    }

    fn top(&self, net: &Router, format: &str) -> anyhow::Result<String> {
        let mut command = net.router.command(binary());
        command.args(["top", "--once", "--ascii", "--format", format, "--socket"]);
        command.arg(self.folder.join("control.sock"));
        let output = command.env("COLUMNS", COLUMNS).output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "query fairpath run: {}",
            error.trim()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The client's two addresses are classes of one site. The window is as long as the demo.
fn configuration() -> String {
    let [v4, v6] = Router::CLIENT.both();
    format!(
        "[control]\nsocket = \"control.sock\"\n[state]\nfile = \"off\"\n[metrics]\nlisten = \"off\"\n\
         [monitor]\ninterfaces = [\"lan\", \"wan\"]\nuplinks = [\"wan\"]\nwindow = 60\n\
         [subnets]\nmax = 0\n\
         [[class]]\nname = \"{SITE}\"\n\
         [[class]]\nname = \"client, IPv4\"\nparent = \"{SITE}\"\nprefix = \"{v4}\"\n\
         [[class]]\nname = \"client, IPv6\"\nparent = \"{SITE}\"\nprefix = \"{v6}\"\n"
    )
}
