//! Shaping in the loop of the daemon: configuration, running back end, and counters.
//!
//! Interfaces that are removed and return are those of [`sides`].

mod sides;
mod threads;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fairpath_bpf::RttMonitor;
use fairpath_class::ClassSet;
use fairpath_core::Rules;
use fairpath_core::sched::{Drop as Reason, NodeConfig, Op, Setting, decode_rate, encode_rate};
use fairpath_history::snapshot::{Queue, QueueWorker, Shape, ShapeSet, ShapedLink, StackTraffic};
use fairpath_policy::Author;
use fairpath_sched::tree::{Round, STACK_SHARE, Tree};
use fairpath_shape::{Both, Figures, Impaired, Lines, Side, Sojourns, StackAlarm, StackCounts};
use fairpath_units::quantity::written;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::afxdp::skipped::Bypassed;
use crate::choose::{self, Choice};
use crate::description::Shapes;
use crate::hold::Hold;
use crate::shape::{Backend, Job, Reading, find_links, no_such_interface};
use crate::team::WorkerFigures;
use crate::{OnBypass, Prepared, ShapeConfig, Via};
use sides::{Present, absent};
use threads::Threads;

/// Quantiles look back over one to two of these.
const WINDOW: Duration = Duration::from_secs(10);
/// The time between a failure of a back end and the next attempt.
const RETRY: Duration = Duration::from_secs(5);

/// The rules from packets to classes.
pub struct Leads {
    /// By number, for shaper instances and our qdiscs.
    pub rules: Rules,
    /// Their numbers by the slots of the monitor, whose XDP program classifies for AF_XDP.
    pub slots: Vec<u32>,
}

/// Shaping as the loop has it; there is one where `[shape]` is configured.
pub struct Shaping {
    lines: Lines,
    rules: Rules,
    slots: Vec<u32>,
    port: Option<Port>,
    /// The last failure, and the time of the next attempt.
    failure: Option<(String, Instant)>,
    /// It was stopped by a command, or `start = false`.
    stopped: bool,
    /// The resources that outlive this process.
    prepared: Prepared,
    /// Secret, so that no sender can choose flows that share a queue with others.
    seed: u32,
    /// No interface was absent when shaping ended or failed to start.
    complete: bool,
    /// Rates that [`Shaping::set`] changed, bit/s, by name; `true` is the floor. A start sets them again.
    set: Both<BTreeMap<(String, bool), u64>>,
}

/// The name of the whole link in commands.
const LINE: &str = "line";

/// The node of a class, or of the whole link.
fn node_of(tree: &Tree, class: &str) -> Option<u32> {
    match class {
        LINE => Some(Tree::SHARED),
        class => tree.names.id(class),
    }
}

/// The shaping of a back end.
fn shapes(via: Via) -> anyhow::Result<&'static Shapes> {
    let shapes = via.description().shapes.as_ref();
    shapes.with_context(|| format!("shape via {}: {}", via.name(), choose::shaper::HOLDS_NONE))
}

/// A port that runs, and what was read of it.
struct Port {
    backend: Box<dyn Backend>,
    /// Keeps other processes from shaping the same interfaces; released after the back end has ended.
    hold: Hold,
    /// Packets that it was made to hold.
    capacity: Both<u32>,
    reason: String,
    reading: Reading,
    read: Instant,
    /// Bytes sent until the reading before, by node, and the time between the readings, seconds.
    sent_before: Both<Vec<u64>>,
    interval: f64,
    /// Those of workers at the reading before.
    workers_before: Both<Vec<WorkerFigures>>,
    threads: Threads,
    /// Rates that [`Shaping::set`] changed, bit/s, by node; `true` is the floor.
    changed: Both<BTreeMap<(u32, bool), u64>>,
    /// Sojourns at the beginning of this window and of the one before, by node.
    begun: [Both<Vec<Sojourns>>; 2],
    window: Instant,
    stack_alarms: Both<StackAlarm>,
    /// The interfaces that are shaped; none where one is absent.
    present: Both<Option<Present>>,
}

fn setting(is_floor: bool) -> Setting {
    match is_floor {
        true => Setting::Floor,
        false => Setting::Ceil,
    }
}

/// Fails if the wanted ceiling and floor, or those that stay, contradict each other. 0 is none.
fn refuse_floor(
    class: &str,
    side: Side,
    wanted: [Option<u64>; 2],
    present: [Option<u64>; 2],
) -> anyhow::Result<()> {
    let then = |at: usize| wanted[at].or(present[at]).filter(|bps| *bps > 0);
    if let (Some(ceil), Some(floor)) = (then(0), then(1))
        && floor > ceil
    {
        bail!(
            "set the rates of {class:?}: {}: floor {} is above ceiling {}: lower the floor, or raise the ceiling",
            side.name(),
            written(floor, "bps"),
            written(ceil, "bps"),
        );
    }
    Ok(())
}

/// True if NFQUEUE replaces AF_XDP after this error.
fn hands_over(config: &ShapeConfig, error: &anyhow::Error) -> bool {
    config.on_bypass == OnBypass::Nfqueue && error.is::<Bypassed>()
}

/// The custom policies, and by what each runs.
fn customs(via: Via, customs: &[Arc<Author>]) -> String {
    // Operations of a scheduler in the kernel cannot be recorded, and only theirs.
    let shapes = via.description().shapes.as_ref();
    let in_kernel = shapes.is_some_and(|shapes| shapes.record.is_some());
    let by = |custom: &Arc<Author>| match (in_kernel, custom.why_interpreted()) {
        (true, _) => "in the kernel".to_owned(),
        (false, None) => "compiled".to_owned(),
        (false, Some(why)) => format!("interpreted: {why}"),
    };
    let each = customs
        .iter()
        .map(|custom| format!("{} ({})", custom.policy.name, by(custom)));
    each.collect::<Vec<_>>().join(", ")
}

/// Warns of the longest round of children that wait for each other, if it is noticeable and was not the
/// same before.
fn warn_of_long_rounds(lines: &Lines, before: Option<&Lines>) {
    let longest = |lines: &Lines, side| lines.trees.get(side).rounds(0).into_iter().next();
    for side in Side::BOTH {
        let round = longest(lines, side).filter(Round::is_long);
        if let Some(round) = round
            && before.and_then(|before| longest(before, side)).as_ref() != Some(&round)
        {
            tracing::warn!("shape {}: {round}", side.name());
        }
    }
}

/// The back end of this configuration in this process.
fn choose_here(
    prepared: &Prepared,
    config: &ShapeConfig,
    classes: &ClassSet,
    impaired: Impaired,
) -> Choice {
    let choice = choose::shaper::choose(config, classes, impaired);
    match prepared.mounts_end() {
        Some(why) if config.via.is_none() && choice.via == Via::Kernel => Choice {
            reason: format!("HTB would lose the rates of classes after a crash: {why}"),
            ..choose::traits(Via::Nfqueue)
        },
        _ => choice,
    }
}

impl Shaping {
    /// A shaper that does not run yet.
    ///
    /// # Errors
    /// The classes do not make valid trees.
    pub fn new(
        config: &ShapeConfig,
        classes: &ClassSet,
        leads: Leads,
        prepared: Prepared,
    ) -> anyhow::Result<Shaping> {
        Ok(Shaping {
            lines: Lines::new(classes, &config.lines)?,
            rules: leads.rules,
            slots: leads.slots,
            port: None,
            failure: None,
            stopped: !config.start,
            prepared,
            seed: getrandom::u32().context("draw the seed of the flow hash")?,
            complete: true,
            set: Both::default(),
        })
    }

    /// Starts, unless it runs already. Returns the back end as text.
    ///
    /// # Errors
    /// No back end can start.
    pub fn start(
        &mut self,
        config: &ShapeConfig,
        classes: &ClassSet,
        monitor: &mut RttMonitor,
    ) -> anyhow::Result<String> {
        self.stopped = false;
        if let Some(port) = &self.port {
            return Ok(format!(
                "shaping already runs via {}",
                port.backend.via().name()
            ));
        }
        match self.open(config, classes, monitor) {
            Ok(mut port) => {
                // The status has figures at once. A failure is that of the next reading, too.
                let _ = port.take_reading(&self.lines, monitor);
                let text = format!(
                    "shaping via {} ({}): {}",
                    port.backend.via().name(),
                    port.reason,
                    port.backend.about()
                );
                self.port = Some(port);
                self.failure = None;
                self.note_absent(config);
                if let Err(error) = self.set_again() {
                    tracing::warn!("{error:#}");
                }
                Ok(text)
            }
            Err(error) => {
                let text = format!("{error:#}");
                self.failure = Some((text, Instant::now() + RETRY));
                self.complete =
                    find_links(config).is_ok_and(|links| absent(config, &links).is_empty());
                Err(error)
            }
        }
    }

    fn open(
        &mut self,
        config: &ShapeConfig,
        classes: &ClassSet,
        monitor: &mut RttMonitor,
    ) -> anyhow::Result<Port> {
        let choice = choose_here(
            &self.prepared,
            config,
            classes,
            config.lines.impaired(classes)?,
        );
        match self.open_by(choice, config, classes, monitor) {
            Err(error) if hands_over(config, &error) => {
                tracing::warn!("{error:#}; {} replaces it", Via::Nfqueue.name());
                let instead = Choice {
                    reason: format!("on_bypass, because {error:#}"),
                    ..choose::traits(Via::Nfqueue)
                };
                self.open_by(instead, config, classes, monitor)
            }
            opened => opened,
        }
    }

    fn open_by(
        &mut self,
        choice: Choice,
        config: &ShapeConfig,
        classes: &ClassSet,
        monitor: &mut RttMonitor,
    ) -> anyhow::Result<Port> {
        let impaired = config.lines.impaired(classes)?;
        choose::shaper::takes(choice.via, config, impaired).map_err(anyhow::Error::msg)?;
        let mut settings = config.lines.clone();
        (settings.marks, settings.stack) = (choice.marks, choice.stack);
        settings.seed = self.seed;
        let lines = Lines::new(classes, &settings)?;
        let shapes = shapes(choice.via)?;
        let links = find_links(config)?;
        let absent = absent(config, &links);
        let some = Side::BOTH.iter().any(|side| links.get(*side).is_some());
        if let Some((_, name)) = absent.first().filter(|_| !some || !shapes.separate) {
            bail!(no_such_interface(name));
        }
        let job = Job {
            config,
            classes,
            lines: &lines,
            rules: &self.rules,
            slots: &self.slots,
            links,
        };
        let found = Side::BOTH
            .iter()
            .filter_map(|side| job.links.get(*side).as_ref());
        let hold = Hold::of(found)?;
        let backend = (shapes.start)(&job, monitor, &self.prepared)?;
        let present = job.links.map(|link| link.as_ref().map(Present::from));
        self.lines = lines;
        warn_of_long_rounds(&self.lines, None);
        let now = Instant::now();
        Ok(Port {
            backend,
            hold,
            capacity: Both {
                down: self.lines.held(Side::Down),
                up: self.lines.held(Side::Up),
            },
            reason: choice.reason,
            reading: Reading::default(),
            read: now,
            sent_before: Both::default(),
            interval: 0.0,
            workers_before: Both::default(),
            threads: Threads::default(),
            changed: Both::default(),
            begun: Default::default(),
            window: now,
            stack_alarms: Both::default(),
            present,
        })
    }

    /// Stops. Queued packets are sent.
    ///
    /// # Errors
    /// Packets were lost, or rules or programs remain.
    pub fn stop(&mut self) -> anyhow::Result<String> {
        self.stopped = true;
        self.failure = None;
        let Some(port) = self.port.take() else {
            return Ok("shaping does not run".to_owned());
        };
        let via = port.backend.via().name();
        let text = port
            .backend
            .stop()
            .with_context(|| format!("stop shaping via {via}"))?;
        Ok(format!("shaping via {via} stopped: {text}"))
    }

    /// Applies other classes, rates or policies without losing packets. Other changes (interfaces, the
    /// back end) need a new back end; the answer has the time without shaping.
    ///
    /// # Errors
    /// They are refused; the old ones stay active.
    pub fn reload(
        &mut self,
        before: &ShapeConfig,
        config: &ShapeConfig,
        classes: &ClassSet,
        leads: Leads,
        monitor: &mut RttMonitor,
    ) -> anyhow::Result<Option<String>> {
        let mut settings = config.lines.clone();
        settings.seed = self.seed;
        if let Some(port) = &self.port {
            let choice = choose::traits(port.backend.via());
            (settings.marks, settings.stack) = (choice.marks, choice.stack);
        }
        let lines = Lines::new(classes, &settings)?;
        let same_port = ShapeConfig {
            lines: config.lines.clone(),
            start: config.start,
            ..before.clone()
        } == *config;
        let Some(port) = &mut self.port else {
            (self.lines, self.rules, self.slots) = (lines, leads.rules, leads.slots);
            self.set = Both::default();
            return Ok(None);
        };
        let via = port.backend.via();
        // Other policies or more packets may need another back end.
        let chosen = config.via.is_some()
            || before.lines == config.lines
            || choose_here(&self.prepared, config, classes, lines.impaired()).via == via;
        let shapes = shapes(via)?;
        let has_capacity = shapes.grows
            || Side::BOTH.iter().all(|side| {
                // Whether packets are segmented is fixed at the start of the back end.
                let same =
                    shapes.keeps_gso || lines.is_impaired(*side) == self.lines.is_impaired(*side);
                same && lines.held(*side) <= *port.capacity.get(*side)
            });
        let takes = choose::shaper::takes(via, config, lines.impaired()).is_ok();
        if same_port && chosen && has_capacity && takes {
            let job = Job {
                config,
                classes,
                lines: &lines,
                rules: &leads.rules,
                slots: &leads.slots,
                links: Both::default(),
            };
            port.backend.replace(&job, &self.lines)?;
            port.forget_windows();
            warn_of_long_rounds(&lines, Some(&self.lines));
            let _ = port.take_reading(&lines, monitor);
            (self.lines, self.rules, self.slots) = (lines, leads.rules, leads.slots);
            self.set = Both::default();
            return Ok(None);
        }
        if let Some(shapes) = config.via.and_then(|via| via.description().shapes.as_ref()) {
            (shapes.is_ready)(monitor)?;
        }
        let begin = Instant::now();
        let ended = self.stop().unwrap_or_else(|error| format!("{error:#}"));
        (self.lines, self.rules, self.slots) = (lines, leads.rules, leads.slots);
        self.set = Both::default();
        // The old back end has ended. A failure is reported, and the start is retried.
        let begun = match self.start(config, classes, monitor) {
            Ok(begun) => {
                let gap = begin.elapsed().as_millis();
                format!("{begun}\nno shaping for {gap} ms")
            }
            Err(error) => format!(
                "shaping is stopped and retried every {} s: {error:#}",
                RETRY.as_secs()
            ),
        };
        Ok(Some(format!("{ended}\n{begun}")))
    }

    /// Activates other rules, after an interface of a class appeared.
    ///
    /// # Errors
    /// The back end refuses them.
    pub fn set_rules(
        &mut self,
        config: &ShapeConfig,
        classes: &ClassSet,
        leads: Leads,
        monitor: &mut RttMonitor,
    ) -> anyhow::Result<()> {
        if leads.rules == self.rules && leads.slots == self.slots {
            return Ok(());
        }
        let set = self.set.clone();
        let done = self.reload(config, config, classes, leads, monitor);
        self.set = set;
        self.set_again()?;
        done.map(drop)
    }

    /// Sets the rates again that [`Shaping::set`] changed. Classes that are no more have none.
    fn set_again(&mut self) -> anyhow::Result<()> {
        let Some(port) = &mut self.port else {
            return Ok(());
        };
        for side in Side::BOTH {
            let tree = self.lines.trees.get(side);
            let by_node = self
                .set
                .get(side)
                .iter()
                .filter_map(|((class, is_floor), bps)| {
                    Some(((node_of(tree, class)?, *is_floor), *bps))
                });
            *port.changed.get_mut(side) = by_node.collect();
            if port.present.get(side).is_some() {
                port.set_again(side)?;
            }
        }
        Ok(())
    }

    /// Reads the counters. A back end that failed is stopped and restarted later.
    pub fn read(
        &mut self,
        config: &ShapeConfig,
        classes: &ClassSet,
        monitor: &mut RttMonitor,
    ) -> Option<String> {
        if let Some(port) = &mut self.port {
            port.hold.answer();
            match port.take_reading(&self.lines, monitor) {
                Ok(()) => {
                    let stopped = port.reading.stopped.take();
                    return match stopped {
                        Some(why) => Some(self.end_stopped(&why)),
                        None if port.has_absent(config) => {
                            self.follow_links(config, classes, monitor)
                        }
                        None => None,
                    };
                }
                Err(error) => {
                    // The reading may precede the notification that an interface was removed. For added queues there is none.
                    match self.follow_sides(config, classes) {
                        Ok(Some(text)) => return Some(text),
                        Ok(None) => {}
                        Err(why) => tracing::error!("follow the interfaces: {why:#}"),
                    }
                    let text = format!("shaping failed and is restarted: {error:#}");
                    let text = self.fail(text);
                    if !hands_over(config, &error) {
                        return Some(text);
                    }
                    tracing::error!("{text}");
                    return self.start(config, classes, monitor).ok();
                }
            }
        }
        let due = self
            .failure
            .as_ref()
            .is_some_and(|(_, at)| Instant::now() >= *at);
        if !due || self.stopped {
            return None;
        }
        self.start(config, classes, monitor).ok()
    }

    /// Stops a back end that failed, as far as possible.
    fn fail(&mut self, text: String) -> String {
        if let Some(port) = self.port.take()
            && let Err(error) = port.backend.stop()
        {
            tracing::warn!("stop shaping: {error:#}");
        }
        self.failure = Some((text.clone(), Instant::now()));
        text
    }

    /// Stops the back end after a custom policy was stopped; it is restarted later.
    fn end_stopped(&mut self, why: &str) -> String {
        let ended = match self.port.take().map(|port| port.backend.stop()) {
            Some(Ok(text)) => text,
            Some(Err(error)) => format!("{error:#}"),
            None => String::new(),
        };
        let text = format!(
            "policy {why}; shaping restarts in {} s: {ended}",
            RETRY.as_secs()
        );
        self.failure = Some((text.clone(), Instant::now() + RETRY));
        text
    }

    /// Readable when the back end has ended before it was stopped; [`Shaping::read`] returns the reason.
    pub fn ended(&self) -> Option<BorrowedFd<'_>> {
        self.port.as_ref()?.backend.ended()
    }

    /// True if the back end has ended before it was stopped.
    pub fn has_ended(&self) -> bool {
        let Some(fd) = self.ended() else {
            return false;
        };
        let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// The present failure.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_ref().map(|(text, _)| text.as_str())
    }

    /// Changes the rates of a class until the next reload.
    ///
    /// # Errors
    /// There is no such class, shaping does not run, or the back end refuses.
    pub fn set(&mut self, wanted: &ShapeSet) -> anyhow::Result<String> {
        let Some(port) = &mut self.port else {
            bail!(
                "set the rates of {:?}: shaping is stopped: `fairpath shape start` starts it",
                wanted.class
            );
        };
        let class = &wanted.class;
        let mut ops = Vec::new();
        for (side, [ceil, floor]) in [
            (Side::Down, [wanted.down_bps, wanted.floor_down_bps]),
            (Side::Up, [wanted.up_bps, wanted.floor_up_bps]),
        ] {
            if ceil.or(floor).is_none() {
                continue;
            }
            let tree = self.lines.trees.get(side);
            let Some(node) = node_of(tree, class) else {
                bail!(
                    "set the rates of {class:?}: no such class: `fairpath shape status` lists classes, and {LINE:?} is the total"
                );
            };
            refuse_floor(class, side, [ceil, floor], port.limits(tree, side, node))?;
            let floor_word = format!("{} floor", side.name());
            ops.extend(ceil.map(|bps| (side, node, false, side.name().to_owned(), bps)));
            ops.extend(floor.map(|bps| (side, node, true, floor_word, bps)));
        }
        let mut done = Vec::new();
        for (side, node, is_floor, word, bps) in ops {
            let op = Op::node(0, node, setting(is_floor), encode_rate(bps));
            port.backend.apply(side, op).with_context(|| {
                let so_far = match done.is_empty() {
                    true => String::new(),
                    false => format!(", after {}", done.join(", ")),
                };
                format!("set the rates of {class:?}: {word}{so_far}")
            })?;
            port.changed.get_mut(side).insert((node, is_floor), bps);
            let set = self.set.get_mut(side);
            set.insert((class.clone(), is_floor), bps);
            let rate = written(bps, "bps");
            done.push(format!("{word} {}", if bps == 0 { "none" } else { &rate }));
        }
        if done.is_empty() {
            bail!("set the rates of {:?}: no rate is given", wanted.class);
        }
        Ok(format!(
            "{}: {}, until the next reload",
            wanted.class,
            done.join(", ")
        ))
    }

    /// The queues of a class, down and up; with the part of each worker, if wanted.
    pub fn queues(&self, class: &str, workers: bool) -> [Option<Queue>; 2] {
        Side::BOTH.map(|side| {
            let tree = self.lines.trees.get(side);
            let node = tree.names.id(class)?;
            let mut queue = self.port.as_ref()?.queue(tree, side, node)?;
            if !workers {
                queue.workers = Vec::new();
            }
            Some(queue)
        })
    }

    /// The queue of the interface of a side.
    pub fn line(&self, side: Side) -> Option<Queue> {
        let port = self.port.as_ref()?;
        let tree = self.lines.trees.get(side);
        let mut queue = port.queue(tree, side, 0)?;
        // The limit of the link is that of the node below the root.
        [queue.ceil_bps, queue.floor_bps] = port.limits(tree, side, Tree::SHARED);
        queue.workers = port.parts(side, Tree::SHARED);
        queue.bound = port.bound(side, &queue);
        Some(queue)
    }

    /// The status, for commands and metrics.
    pub fn snapshot(&self, config: &ShapeConfig) -> Shape {
        let mut shape = Shape {
            running: self.port.is_some(),
            failure: self.failure().map(str::to_owned),
            ..Shape::default()
        };
        let Some(port) = &self.port else {
            return shape;
        };
        shape.via = port.backend.via().name().to_owned();
        shape.reason = port.reason.clone();
        shape.about = port.backend.about();
        let customs = customs(
            port.backend.via(),
            &self.lines.trees.get(Side::Down).customs,
        );
        if !customs.is_empty() {
            shape.about += &format!("; custom policies: {customs}");
        }
        shape.counters = port.reading.counters.clone();
        shape.workers = port.threads.workers().to_vec();
        for side in Side::BOTH {
            let interface = match side {
                Side::Down => Some(&config.inside),
                Side::Up => config.outside.as_ref(),
            };
            if let (Some(interface), Some(queue)) = (interface, self.line(side)) {
                shape.lines.push(ShapedLink {
                    side: side.name().to_owned(),
                    interface: interface.clone(),
                    ceil_bps: queue.ceil_bps,
                    rate_bps: queue.rate_bps,
                    stack: port.reading.stack.get(side).as_ref().map(stack_traffic),
                    queue,
                });
            }
        }
        shape
    }
}

impl Port {
    fn take_reading(&mut self, lines: &Lines, monitor: &RttMonitor) -> anyhow::Result<()> {
        let reading = self.backend.read(monitor)?;
        let now = Instant::now();
        self.interval = now.duration_since(self.read).as_secs_f64();
        for side in Side::BOTH {
            let figures = self.reading.figures.get(side).iter().flatten();
            *self.sent_before.get_mut(side) = figures.map(|f| f.sent_bytes).collect();
        }
        let mut before = std::mem::replace(&mut self.reading, reading);
        self.workers_before = std::mem::take(&mut before.workers);
        let interval = Duration::from_secs_f64(self.interval);
        self.threads.take(&self.reading.threads, interval);
        self.read = now;
        for side in Side::BOTH {
            let before = before.stack.get(side);
            self.watch_stack(lines.trees.get(side), side, before.as_ref());
        }
        if now.duration_since(self.window) >= WINDOW {
            self.window = now;
            self.begun.swap(0, 1);
            for side in Side::BOTH {
                let figures = self.reading.figures.get(side).iter().flatten();
                *self.begun[0].get_mut(side) = figures.map(|f| f.sojourns.clone()).collect();
            }
        }
        Ok(())
    }

    /// Warns of a network stack that takes the link, if it only is charged.
    fn watch_stack(&mut self, tree: &Tree, side: Side, before: Option<&StackCounts>) {
        let (Some(before), Some(now)) = (before, self.reading.stack.get(side)) else {
            return;
        };
        let time = Duration::from_secs_f64(self.interval);
        let bytes = now.sent.saturating_sub(before.sent);
        let bps = match self.interval {
            interval if interval > 0.0 => bytes as f64 * 8.0 / interval,
            _ => return,
        };
        let [ceil, _] = self.limits(tree, side, Tree::SHARED);
        let ceil = ceil.unwrap_or(0);
        if self.stack_alarms.get_mut(side).take(bps, ceil, time) {
            let (via, side) = (self.backend.via().name(), side.name());
            tracing::warn!(
                "shaping {side}: the router itself sends {:.1} Mbit/s on a link of {:.1} Mbit/s, \
                 and {via} charges at most 1/{STACK_SHARE} of the link to it: the link carries more than its rate: \
                 limit the program that sends, or use via = \"nfqueue\", \"kernel\" or \"qdisc\", which schedule it",
                bps / 1e6,
                ceil as f64 / 1e6,
            );
        }
    }

    /// Restarts the windows, since the numbers of nodes changed.
    fn forget_windows(&mut self) {
        self.begun = Default::default();
        self.window = Instant::now();
        self.reading.figures = Both::default();
        self.sent_before = Both::default();
        self.reading.workers = Both::default();
        self.changed = Both::default();
    }

    fn set_again(&mut self, side: Side) -> anyhow::Result<()> {
        for ((node, is_floor), bps) in self.changed.get(side) {
            let op = Op::node(0, *node, setting(*is_floor), encode_rate(*bps));
            let applied = self.backend.apply(side, op);
            applied.context("set the rates of `fairpath shape set` again")?;
        }
        Ok(())
    }

    /// The present ceiling and floor of a node, bit/s.
    fn limits(&self, tree: &Tree, side: Side, node: u32) -> [Option<u64>; 2] {
        // Ids of nodes are indices plus 1; 0 is the whole tree.
        let index = (node as usize).checked_sub(1);
        let configured = index.and_then(|index| tree.plan.nodes.get(index));
        [false, true].map(|is_floor| {
            let set = self.changed.get(side).get(&(node, is_floor)).copied();
            let encoded = |config: &NodeConfig| if is_floor { config.floor } else { config.ceil };
            let bps = set.or_else(|| configured.map(|config| decode_rate(encoded(config))));
            bps.filter(|bps| *bps > 0)
        })
    }

    /// The achieved rate of a node over the last interval, bit/s.
    fn rate(&self, side: Side, node: u32, figures: &Figures) -> f64 {
        match self.sent_before.get(side).get(node as usize) {
            Some(before) if self.interval > 0.0 => {
                figures.sent_bytes.saturating_sub(*before) as f64 * 8.0 / self.interval
            }
            _ => 0.0,
        }
    }

    fn queue(&self, tree: &Tree, side: Side, node: u32) -> Option<Queue> {
        let figures = self
            .reading
            .figures
            .get(side)
            .as_ref()?
            .get(node as usize)?;
        let begun = self.begun[1].get(side).get(node as usize);
        let [ceil_bps, floor_bps] = self.limits(tree, side, node);
        let mut queue = Queue {
            ceil_bps,
            floor_bps,
            rate_bps: self.rate(side, node, figures),
            workers: self.parts(side, node),
            ..queue(figures, begun)
        };
        queue.bound = self.bound(side, &queue);
        Some(queue)
    }

    /// The part of each worker in a node, if there are several.
    fn parts(&self, side: Side, node: u32) -> Vec<QueueWorker> {
        let (now, before) = (
            self.reading.workers.get(side),
            self.workers_before.get(side),
        );
        threads::parts(now, before, self.interval, node as usize, |worker| {
            self.backend.grants(side, node, worker)
        })
    }

    /// The CPU that keeps a queue below its ceiling.
    fn bound(&self, side: Side, queue: &Queue) -> Option<String> {
        let only = QueueWorker {
            rate_bps: queue.rate_bps,
            backlog_packets: queue.backlog_packets,
            ..QueueWorker::default()
        };
        let parts = match queue.workers.is_empty() {
            true => std::slice::from_ref(&only),
            false => &queue.workers,
        };
        self.threads.bound(side, queue.ceil_bps, parts)
    }
}

fn stack_traffic(counts: &StackCounts) -> StackTraffic {
    StackTraffic {
        sent_bytes: counts.sent,
        not_charged_bytes: counts.not_charged,
        debt_ns: counts.debt_ns,
    }
}

fn queue(figures: &Figures, begun: Option<&Sojourns>) -> Queue {
    let window = match begun {
        Some(begun) => figures.sojourns.since(begun),
        None => figures.sojourns.clone(),
    };
    let by_reason = Reason::ALL.map(|reason| (reason.name(), figures.dropped[reason as usize]));
    let dropped: BTreeMap<String, u64> = (by_reason.into_iter())
        .filter(|(_, n)| *n > 0)
        .map(|(name, n)| (name.to_owned(), n))
        .collect();
    Queue {
        enqueued_packets: figures.arrived,
        enqueued_bytes: figures.arrived_bytes,
        sent_packets: figures.sent,
        sent_bytes: figures.sent_bytes,
        marked_packets: figures.marked,
        dropped_packets: figures.dropped(),
        dropped,
        backlog_packets: figures.held,
        backlog_bytes: figures.backlog_bytes,
        p50_sojourn_ns: window.quantile(0.5),
        p95_sojourn_ns: window.quantile(0.95),
        p99_sojourn_ns: window.quantile(0.99),
        ..Queue::default()
    }
}
