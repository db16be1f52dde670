//! The kernel's netem at both interfaces of a link's seat, where the kernel has it.
//!
//! It reports drops of queue and loss in one number and no lateness, and counts a GSO packet as one: the
//! network's offloads are disabled, so it receives none.

use fairpath_analysis::experiment::Direction;
use fairpath_analysis::quantity::Time;
use fairpath_analysis::record::{CommandRecord, LinkRecord};

use super::{Emulated, Emulator, EngineError, Task};
use fairpath_testbed::Netns;
use serde::Deserialize;

/// 99.9 % of a normal distribution are within this number of deviations.
const DEVIATIONS: f64 = 3.29;
/// Packets in its delay line and queue, unless a limit is configured.
const LIMIT: u64 = 20_000;

/// Puts it at both interfaces.
///
/// # Errors
/// The kernel has none, or it cannot do what is asked.
pub fn start(task: &Task<'_>) -> Result<Box<dyn Emulator>, EngineError> {
    let router = task.network.host(task.seat.host);
    let mut directions = Vec::new();
    for (far, interface) in [(true, task.seat.interface), (false, task.seat.peer)] {
        let end = if far { task.seat.far } else { task.seat.host };
        let direction = task.spec.towards(end);
        if direction.is_plain() {
            continue;
        }
        let failed =
            |operation: String, source: Box<dyn std::error::Error + Send + Sync>| EngineError {
                link: task.seat.interface.to_owned(),
                operation,
                source,
            };
        let words = words(&direction).map_err(|what| {
            let operation = format!("netem has no {what}; use engine = \"impair\"");
            failed(operation, "it is not one of its options".into())
        })?;
        let mut argv = vec!["tc", "qdisc", "replace", "dev", interface, "root", "netem"];
        argv.extend(words.iter().map(String::as_str));
        let none = "add netem; a kernel without CONFIG_NET_SCH_NETEM needs engine = \"impair\"";
        router
            .run(&argv)
            .map_err(|error| failed(none.to_owned(), error.into()))?;
        directions.push(LinkDirection {
            router: router.clone(),
            interface: interface.to_owned(),
            name: task.direction_name(far),
            command: CommandRecord {
                host: task.seat.host.to_owned(),
                argv: argv.into_iter().map(str::to_owned).collect(),
            },
            direction,
        });
    }
    Ok(Box::new(Netem { directions }))
}

/// netem's options, or what it has no option for.
fn words(direction: &Direction) -> Result<Vec<String>, &'static str> {
    if direction.policy.is_some() {
        return Err("policies for what waits");
    }
    if direction.impair.is_some() || !direction.delay_steps.is_empty() {
        return Err("word of `fairpath impair` and no delays at times");
    }
    let mut words = Vec::new();
    // Its limit counts what the line holds, too.
    let pipe = direction.pipe_packets().ceil() as u64;
    let limit = direction
        .limit_packets()
        .map_or(LIMIT, |limit| u64::from(limit) + pipe);
    words.extend(["limit".to_owned(), limit.to_string()]);
    if direction.delay.ns() > 0 || direction.jitter.ns() > 0 {
        words.extend(["delay".to_owned(), time(direction.delay)]);
    }
    if direction.jitter.ns() > 0 {
        words.push(time(direction.jitter));
        words.extend(direction.correlation.map(|share| share.to_string()));
        words.extend(["distribution".to_owned(), "normal".to_owned()]);
    }
    if direction.loss.value() > 0.0 {
        words.extend(["loss".to_owned(), direction.loss.to_string()]);
    }
    words.extend(direction.rate.iter().flat_map(|rate| {
        let bits = format!("{}bit", rate.bps().round());
        ["rate".to_owned(), bits]
    }));
    Ok(words)
}

/// tc reads no ns here.
fn time(time: Time) -> String {
    format!("{}us", time.ns() as f64 / 1e3)
}

/// Both directions.
struct Netem {
    directions: Vec<LinkDirection>,
}

struct LinkDirection {
    router: Netns,
    interface: String,
    name: String,
    command: CommandRecord,
    direction: Direction,
}

impl Emulator for Netem {
    fn process(&self) -> Option<(String, u32)> {
        None
    }

    fn commands(&self) -> Vec<CommandRecord> {
        self.directions
            .iter()
            .map(|direction| direction.command.clone())
            .collect()
    }

    fn finish(self: Box<Self>) -> Result<Emulated, EngineError> {
        let links: Result<Vec<LinkRecord>, EngineError> = self
            .directions
            .iter()
            .map(LinkDirection::reported)
            .collect();
        Ok(Emulated {
            links: links?,
            queues: Vec::new(),
        })
    }
}

impl Drop for Netem {
    fn drop(&mut self) {
        for direction in &self.directions {
            // It goes with its namespace where this fails.
            let _ = direction.router.run(&[
                "tc",
                "qdisc",
                "delete",
                "dev",
                &direction.interface,
                "root",
            ]);
        }
    }
}

/// `tc -s -j qdisc show`.
#[derive(Deserialize)]
struct Shown {
    packets: u64,
    drops: u64,
}

impl LinkDirection {
    fn reported(&self) -> Result<LinkRecord, EngineError> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| EngineError {
            link: self.interface.clone(),
            operation: "read what netem did".to_owned(),
            source,
        };
        let argv = [
            "tc",
            "-s",
            "-j",
            "qdisc",
            "show",
            "dev",
            &self.interface,
            "root",
        ];
        let text = self
            .router
            .run(&argv)
            .map_err(|error| failed(error.into()))?;
        let shown: Vec<Shown> =
            serde_json::from_str(&text).map_err(|error| failed(error.into()))?;
        let shown = shown
            .first()
            .ok_or_else(|| failed("tc shows no qdisc".into()))?;
        Ok(self.link(shown))
    }

    fn link(&self, shown: &Shown) -> LinkRecord {
        let packets = shown.packets + shown.drops;
        let p = self.direction.loss.value();
        let deviation = (p * (1.0 - p) / packets.max(1) as f64).sqrt() * DEVIATIONS;
        // With a rate, drops of the queue are in the same number, so there is no comparison.
        let alone = self.direction.rate.is_none();
        LinkRecord {
            name: self.name.clone(),
            engine: "netem".to_owned(),
            requested: self.command.argv[7..].join(" "),
            packets,
            lost: if alone { shown.drops } else { 0 },
            loss_requested: Some(p),
            loss_interval: alone.then_some(((p - deviation).max(0.0), (p + deviation).min(1.0))),
            queue_dropped: if alone { 0 } else { shown.drops },
            delay_requested_ns: None,
            ..LinkRecord::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_analysis::experiment::LinkSpec;

    fn direction(text: &str) -> Direction {
        toml::from_str::<LinkSpec>(text).unwrap().towards("server")
    }

    #[test]
    fn the_limit_covers_the_bandwidth_delay_product() {
        let requested = direction("rate = '100mbit'\ndelay = '10ms'\nlimit = 100\nloss = '1%'\n");
        assert_eq!(
            words(&requested).unwrap().join(" "),
            "limit 183 delay 10000us loss 1% rate 100000000bit"
        );
    }

    #[test]
    fn unsupported_netem_features_are_refused_by_name() {
        assert_eq!(
            words(&direction("policy = 'codel'")),
            Err("policies for what waits")
        );
    }
}
