//! A real Prometheus on loopback, for one test.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::prometheus::packaging;
use crate::web::get;

/// Time limit for results of scrapes. Long, because test machines are busy.
pub const DEADLINE: Duration = Duration::from_secs(90);
/// Pause between two checks of a condition.
pub const PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of starts, because another process may take the port.
const STARTS: usize = 5;

/// A Prometheus with its own port, data and configuration, which are removed when dropped.
pub struct Prometheus {
    child: Child,
    address: SocketAddr,
    _dir: TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// Scrapes `target` four times a second, with the rules of packaging.
    pub fn start(binary: &Path, target: SocketAddr) -> Prometheus {
        let started = (0..STARTS).find_map(|_| Prometheus::try_start(binary, target));
        started.expect("prometheus starts")
    }

    fn try_start(binary: &Path, target: SocketAddr) -> Option<Prometheus> {
        let dir = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let configuration = dir.path().join("prometheus.yml");
        let rules = fs::canonicalize(packaging("prometheus/fairpath.rules.yml")).unwrap();
        let text = format!(
            "global: {{scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}}\n\
             rule_files: ['{}']\n\
             scrape_configs:\n- job_name: fairpath\n  static_configs: [{{targets: ['{target}']}}]\n",
            rules.display()
        );
        fs::write(&configuration, text).unwrap();
        let child = Command::new(binary)
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                dir.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .args(["--log.level=error", "--storage.tsdb.retention.time=1h"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut prometheus = Prometheus {
            child,
            address,
            _dir: dir,
        };
        prometheus.wait_until_ready().then_some(prometheus)
    }

    /// Returns false if it ended, for example because its port is in use.
    fn wait_until_ready(&mut self) -> bool {
        let since = Instant::now();
        while TcpStream::connect(self.address).is_err() || get(self.address, "/-/ready").0 != 200 {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(
                since.elapsed() < DEADLINE,
                "prometheus is not ready in time"
            );
            std::thread::sleep(PAUSE);
        }
        true
    }

    /// The data of an API answer.
    pub fn request(&self, target: &str) -> Value {
        let (status, body) = get(self.address, target);
        let mut answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (status, &answer["status"]),
            (200, &Value::from("success")),
            "{target}: {body}"
        );
        answer["data"].take()
    }

    /// The samples of an instant query: labels and values.
    pub fn query(&self, expression: &str) -> Vec<(Value, f64)> {
        let encoded: String = form_urlencoded::byte_serialize(expression.as_bytes()).collect();
        let data = self.request(&format!("/api/v1/query?query={encoded}"));
        let sample = |s: &Value| {
            (
                s["metric"].clone(),
                s["value"][1].as_str().unwrap().parse().unwrap(),
            )
        };
        data["result"]
            .as_array()
            .unwrap()
            .iter()
            .map(sample)
            .collect()
    }

    /// Waits until a query returns a number.
    pub fn until_some(&self, expression: &str) -> Vec<(Value, f64)> {
        let since = Instant::now();
        loop {
            let samples = self.query(expression);
            if samples.iter().any(|(_, value)| value.is_finite()) {
                return samples;
            }
            assert!(since.elapsed() < DEADLINE, "never a sample: {expression}");
            std::thread::sleep(PAUSE);
        }
    }
}
