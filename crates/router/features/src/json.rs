//! The report as one JSON object per line; `schema` changes when a key changes its meaning or is removed.

use serde::Serialize;

use super::FeaturesReport;
use super::cpus::HostCpus;
use super::host::Host;
use super::interface::Interface;
use super::probes::Finding;

const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct JsonLine<T> {
    schema: u32,
    r#type: &'static str,
    #[serde(flatten)]
    body: T,
}

#[derive(Serialize)]
struct FeatureLine<'a> {
    feature: &'a str,
    available: Option<bool>,
    tested_by: &'a str,
    used_for: &'a str,
    instead: &'a str,
    remedy: Option<&'a str>,
    detail: &'a str,
}

/// The host, then the features in the table's order, then the interfaces by index.
pub fn render(report: &FeaturesReport) -> serde_json::Result<String> {
    let mut lines = host_line(&report.host)?;
    for finding in &report.findings {
        lines.push_str(&feature_line(finding)?);
    }
    for interface in &report.interfaces {
        lines.push_str(&interface_line(interface)?);
    }
    Ok(lines)
}

/// The CPUs, then the interfaces by index; their collisions are in `advice`.
pub fn render_cpus(cpus: &HostCpus, interfaces: &[Interface]) -> serde_json::Result<String> {
    let mut lines = line("cpus", cpus)?;
    for interface in interfaces {
        lines.push_str(&interface_line(interface)?);
    }
    Ok(lines)
}

fn host_line(host: &Host) -> serde_json::Result<String> {
    line("host", host)
}

fn feature_line(finding: &Finding) -> serde_json::Result<String> {
    let feature = finding.feature;
    line(
        "feature",
        FeatureLine {
            feature: feature.id,
            available: finding.available,
            tested_by: feature.tested_by,
            used_for: feature.used_for,
            instead: feature.instead,
            remedy: finding.remedy.as_deref(),
            detail: &finding.detail,
        },
    )
}

fn interface_line(interface: &Interface) -> serde_json::Result<String> {
    line("interface", interface)
}

fn line<T: Serialize>(r#type: &'static str, body: T) -> serde_json::Result<String> {
    let schema = SCHEMA;
    let mut text = serde_json::to_string(&JsonLine {
        schema,
        r#type,
        body,
    })?;
    text.push('\n');
    Ok(text)
}
