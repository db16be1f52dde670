//! An experiment in words, for `fairpath lab show`.

use std::fmt::Write;

use fairpath_analysis::experiment::{
    CallSpec, Direction, Document, Experiment, FlowKind, FlowSpec, FormName, LinkSpec, PingSpec,
    ScaleChoice,
};
use fairpath_analysis::topology::{self, Topology, TopologyChoice};

use crate::progress::written;

/// The cost of setting up one run, seconds, as measured on two cores.
pub const SETTING_UP: f64 = 1.6;

/// The number of runs of a form, and their duration, seconds.
pub fn cost(document: &Document, form: FormName) -> (usize, f64) {
    let settings = document.settings(form);
    let runs = settings
        .iter()
        .filter_map(|setting| document.at(form, setting).ok());
    let trials = crate::calibrate::cost(document.base(), SETTING_UP);
    runs.fold((0, trials), |(count, seconds), run| {
        let repeats = run.repeats as usize;
        (count + repeats, seconds + repeats as f64 * run_cost(&run))
    })
}

/// The duration of one run, seconds.
pub fn run_cost(run: &Experiment) -> f64 {
    let idle = run.pings.values().map(|ping| ping.idle).fold(0.0, f64::max);
    let changes = run.links.values().any(|link| !link.delay_steps.is_empty());
    let lead = if changes {
        crate::engine::STEPS_LEAD.as_secs_f64()
    } else {
        0.0
    };
    run.seconds + idle + lead + SETTING_UP
}

/// Title, question, text, network, traffic, axes and forms.
pub fn shown(document: &Document) -> String {
    let base = document.base();
    let mut text = format!("{}: {}\n\n{}\n", base.name, base.title, base.question);
    if !base.text.trim().is_empty() {
        let _ = write!(text, "\n{}\n", base.text.trim());
    }
    for remark in &base.remarks {
        let _ = writeln!(text, "\nNote: {remark}");
    }
    let _ = write!(text, "\nnetwork   {}\n", network(base));
    for (name, spec) in &base.links {
        let _ = writeln!(text, "link      {name}: {}", link(spec));
    }
    for line in traffic(base) {
        let _ = writeln!(text, "{line}");
    }
    if base.scale != ScaleChoice::default() {
        let _ = writeln!(text, "scale     {}", scale(base.scale));
    }
    for axis in &base.axes {
        let label = if axis.label.is_empty() {
            String::new()
        } else {
            format!(" ({})", axis.label)
        };
        let _ = writeln!(
            text,
            "axis      {}{label}: {}",
            axis.name,
            axis.names().join(", ")
        );
    }
    for form in [FormName::Quick, FormName::Full] {
        let (runs, seconds) = cost(document, form);
        let time = written(std::time::Duration::from_secs_f64(seconds));
        let settings = document.settings(form).len();
        let _ = writeln!(
            text,
            "{:<9} {settings} settings, {runs} runs, about {time}",
            form.to_string()
        );
    }
    text
}

/// The shipped topologies: hosts, and each link with its ends and the host that emulates it.
///
/// # Errors
/// A shipped topology is invalid.
pub fn topologies() -> anyhow::Result<String> {
    let mut text = String::new();
    for name in topology::shipped() {
        let topology = Topology::of(&TopologyChoice::Named(name.to_owned()))?;
        let _ = writeln!(text, "{name}");
        let _ = writeln!(text, "    hosts  {}", topology.hosts.join(", "));
        for link in &topology.links {
            let [a, b] = &link.ends;
            let emulated = match topology.seat(link) {
                Some(seat) => format!("emulated at {}", seat.host),
                None => "a plain cable, because neither end has exactly two links".to_owned(),
            };
            let _ = writeln!(text, "    link   {}: {a} to {b}, {emulated}", link.name);
        }
        for route in &topology.routes {
            let (at, to, via) = (&route.at, &route.to, &route.via);
            let _ = writeln!(text, "    route  {at} to {to} via {via}");
        }
    }
    Ok(text)
}

fn network(base: &Experiment) -> String {
    let name = match &base.topology {
        TopologyChoice::Named(name) => name.as_str(),
        TopologyChoice::Drawn(_) => "custom",
    };
    let links = Topology::of(&base.topology)
        .map(|topology| topology.links)
        .unwrap_or_default();
    let drawn: Vec<String> = (links.iter())
        .map(|link| format!("{} -{}- {}", link.ends[0], link.name, link.ends[1]))
        .collect();
    format!("{name}: {}", drawn.join(", "))
}

fn link(spec: &LinkSpec) -> String {
    let both = spec.towards("");
    let mut parts = Vec::new();
    if !both.is_plain() {
        parts.push(direction(&both));
    }
    for host in spec.to.keys() {
        parts.push(format!("towards {host} {}", direction(&spec.towards(host))));
    }
    parts.join("; ")
}

/// "100mbit, delay 10ms, loss 1%".
pub fn direction(direction: &Direction) -> String {
    let mut parts = Vec::new();
    parts.extend(direction.rate.map(|rate| rate.to_string()));
    if direction.delay.ns() > 0 {
        parts.push(format!("delay {}", direction.delay));
    }
    if direction.jitter.ns() > 0 {
        parts.push(format!("jitter {}", direction.jitter));
    }
    if direction.loss.value() > 0.0 {
        parts.push(format!("loss {}", direction.loss));
    }
    parts.extend(direction.policy.clone());
    parts.extend(direction.limit.map(|limit| format!("queue limit {limit}")));
    parts.extend(direction.impair.clone());
    for step in &direction.delay_steps {
        parts.push(format!("delay {} from {} s on", step.delay, step.at));
    }
    parts.join(", ")
}

fn traffic(base: &Experiment) -> Vec<String> {
    let flow = |(name, flow): (&String, &FlowSpec)| {
        let what = match flow.kind {
            FlowKind::Tcp => flow.congestion.clone().unwrap_or_default(),
            FlowKind::Udp => "UDP".to_owned(),
        };
        let rate = flow
            .bitrate
            .map_or_else(String::new, |rate| format!(" at {rate}"));
        let times = if flow.number > 1 {
            format!(", {} of them", flow.number)
        } else {
            String::new()
        };
        let start = if flow.start > 0.0 {
            format!(", from {} s on", flow.start)
        } else {
            String::new()
        };
        format!(
            "flow      {name}: {what}{rate} from {} to {}{times}{start}",
            flow.from, flow.to
        )
    };
    let ping = |(name, ping): (&String, &PingSpec)| {
        format!(
            "ping      {name}: from {} to {}, every {}",
            ping.from, ping.to, ping.interval
        )
    };
    let call = |(name, call): (&String, &CallSpec)| {
        format!("call      {name}: from {} to {}, G.711", call.from, call.to)
    };
    (base.flows.iter().map(flow))
        .chain(base.pings.iter().map(ping))
        .chain(base.calls.iter().map(call))
        .collect()
}

fn scale(choice: ScaleChoice) -> String {
    match choice {
        ScaleChoice::Fixed(factor) => format!("rates times {factor}, times of links divided by it"),
        ScaleChoice::Named(_) => "the largest valid one on this machine, by trials".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use fairpath_analysis::experiment::shipped;

    use super::*;

    /// The longest that a quick form may run, seconds (of its five minutes some are for setting up), and the
    /// fewest runs that an interval needs.
    const QUICK_SECONDS: f64 = 285.0;
    const QUICK_REPEATS: u32 = 3;
    /// The longest that the full form of `ripe88` may, trials with it.
    const RIPE88_SECONDS: f64 = 7_200.0;

    #[test]
    fn quick_forms_of_shipped_experiments_take_five_minutes() {
        for name in shipped::names() {
            let document = Document::open(&name).unwrap();
            assert_eq!(document.base().name, name);
            let (_, seconds) = cost(&document, FormName::Quick);
            assert!(seconds <= QUICK_SECONDS, "{name}: {seconds} s");
            for setting in document.settings(FormName::Quick) {
                let run = document.at(FormName::Quick, &setting).unwrap();
                assert!(run.repeats >= QUICK_REPEATS, "{name}");
            }
        }
    }

    #[test]
    fn ripe88_takes_two_hours_with_longer_long_paths() {
        let document = Document::open("ripe88").unwrap();
        let (runs, seconds) = cost(&document, FormName::Full);
        assert!(seconds <= RIPE88_SECONDS, "{runs} runs, {seconds} s");
        let settings = document.settings(FormName::Full);
        let far = settings.iter().find(|setting| setting["rtt"] == "100ms");
        let run = document.at(FormName::Full, far.unwrap()).unwrap();
        assert_eq!((run.seconds, run.repeats), (24.0, 10));
        let bottleneck = run.links["bottleneck"].towards("server");
        assert_eq!(bottleneck.limit_packets(), Some(7431));
    }

    /// The example of the guide: 13 loss rates and three congestion controls, with the buffer of its path.
    #[test]
    fn the_guides_loss_matrix_is_shown_as_printed() {
        let guide = include_str!("../../../../docs/guide/lab.md");
        let text = guide.split("```toml\n").nth(1).unwrap();
        let text = text.split("```").next().unwrap();
        let document = Document::parse("loss-matrix.toml", text).unwrap();
        let settings = document.settings(FormName::Full);
        assert_eq!(settings.len(), 13 * 3);
        for setting in &settings {
            let run = document.at(FormName::Full, setting).unwrap();
            let wan = run.links["wan"].towards("server");
            // 100 Mbit/s times 30 ms, in frames of 1,514 bytes.
            assert_eq!(wan.limit_packets(), Some(248), "{setting:?}");
        }
        let shown = shown(&document);
        assert!(
            guide.contains(&shown),
            "docs/guide/lab.md must contain:\n{shown}"
        );
    }

    #[test]
    fn topologies_are_listed_with_links_and_hosts() {
        let text = topologies().unwrap();
        for part in [
            "router\n    hosts  client, router, server\n    link   lan: client to router, emulated at router\n",
            "    link   bottleneck: r3 to server, emulated at r3\n",
            "    route  ",
            "pair\n    hosts  ",
            "a plain cable, because neither end has exactly two links",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        for name in topology::shipped() {
            assert!(text.lines().any(|line| line == name), "{name}");
        }
    }

    #[test]
    fn ripe88_is_shown_with_links_axes_and_duration() {
        let text = shown(&Document::open("ripe88").unwrap());
        for part in [
            "ripe88: The surprising impact of 1 % packet loss",
            "client -access- r1",
            "link      bottleneck: 900mbit, queue limit 150 packets; towards server 900mbit, delay 500us",
            "axis      loss (packets lost): 0%, 1%",
            "quick     12 settings, 36 runs, about",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
