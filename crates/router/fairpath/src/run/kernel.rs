//! The monitor in the kernel and the interfaces that it is attached to.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use anyhow::Context;
use fairpath_bpf::{Options, RttMonitor};
use fairpath_config::Hook;
use fairpath_config::duration::nanos;
use fairpath_config::{Config, Filters, Monitor};
use fairpath_core::{ClassReading, Config as CoreConfig, FlowView, Stats};

use fairpath_backend::monotonic_ns;
use fairpath_history::row_table::{Layout, RowTable, Watched};
use fairpath_history::snapshot::WaitingFor;
use fairpath_watch::{Change, Configured, Interfaces};

/// The interval of searches for silent flows, and the number of calls that search all of the tables.
const EXPIRE_EVERY: Duration = Duration::from_millis(500);
const EXPIRE_PARTS: u32 = 64;
/// Slots for interfaces and growth, in addition to those of classes and subnets.
const SPARE_SLOTS: usize = 768;

/// Programs, tables and attachments.
pub struct Kernel {
    monitor: RttMonitor,
    interfaces: Interfaces,
    configured: Configured,
    reading: ClassReading,
    next_expiry: Instant,
}

/// The slots of a configuration without `max_classes`, or with it.
pub fn slots(config: &Config) -> u32 {
    let roomy = min_slots(config) + config.classes.set.len() / 4 + SPARE_SLOTS;
    let wanted = config.monitor.max_classes.map_or(roomy, |n| n as usize + 1);
    u32::try_from(wanted)
        .unwrap_or(u32::MAX)
        .min(fairpath_core::MAX_SLOTS)
}

/// Minimum number of slots: classes with criteria, subnets, and `other`.
pub fn min_slots(config: &Config) -> usize {
    let classes = config.classes.set.classes().iter();
    classes.filter(|class| !class.criteria.is_empty()).count() + config.subnets.max + 1
}

impl Kernel {
    /// Loads the programs without attaching. Takes most of a second.
    ///
    /// # Errors
    /// The kernel refuses; the error names the missing feature.
    pub fn load(config: &Config) -> anyhow::Result<Kernel> {
        let monitor = &config.monitor;
        let mut core = core_config(config)?;
        // A secret seed, so that no sender can choose addresses that share one set.
        core.seed = getrandom::u64().context("draw the seed of the flow hash")?;
        let interfaces = Interfaces::new(&monitor.interfaces, monitor.hook)?;
        let mut options = Options::live(core);
        if monitor.hook == Hook::Tcx {
            options = options.without_xdp();
        }
        // With the forwarding back end, its own program measures at XDP.
        let wanted = config.shape.as_ref().and_then(|shape| shape.via);
        let shapes = wanted.and_then(|via| via.description().shapes.as_ref());
        if shapes.is_some_and(|shapes| shapes.forwards) && monitor.hook == Hook::Tcx {
            options = options.with_forwarding();
        }
        Ok(Kernel {
            monitor: RttMonitor::load(&options)?,
            interfaces,
            configured: Configured::new(&monitor.interfaces, &monitor.uplinks)?,
            reading: ClassReading::default(),
            next_expiry: Instant::now() + EXPIRE_EVERY,
        })
    }

    /// Applies changes of links: attaches and detaches.
    ///
    /// # Errors
    /// rtnetlink cannot be read.
    pub fn follow(&mut self) -> anyhow::Result<Vec<Change>> {
        self.interfaces.follow(&mut self.monitor)
    }

    /// Watches the interfaces of another configuration.
    ///
    /// # Errors
    /// A pattern is invalid; nothing has changed.
    pub fn want(&mut self, monitor: &Monitor) -> anyhow::Result<Vec<Change>> {
        let configured = Configured::new(&monitor.interfaces, &monitor.uplinks)?;
        let changes = self
            .interfaces
            .want(&monitor.interfaces, &mut self.monitor)?;
        self.configured = configured;
        Ok(changes)
    }

    /// The programs.
    pub fn monitor_mut(&mut self) -> &mut RttMonitor {
        &mut self.monitor
    }

    /// The watched interfaces.
    pub fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    /// The interfaces and uplinks of the configuration that are not monitored.
    pub fn waiting_for(&self) -> Vec<WaitingFor> {
        self.configured.waiting_for(&self.interfaces.links())
    }

    /// Calls `with` with the watched interfaces.
    pub fn with_watched<T>(&self, with: impl FnOnce(&Watched<'_>) -> T) -> T {
        let interfaces = self.interfaces.watched();
        let is_uplink = |(_, name): &&(_, &str)| self.configured.is_uplink(name);
        let uplinks = interfaces
            .iter()
            .filter(is_uplink)
            .map(|(index, _)| index.0);
        with(&Watched {
            uplinks: uplinks.collect(),
            index_of: &|name| self.interfaces.index_of(name).map(|index| index.0),
            interfaces,
        })
    }

    /// Activates a layout between two packets.
    ///
    /// # Errors
    /// The rules exceed a limit; the old ones stay active.
    pub fn set_layout(&mut self, layout: &Layout) -> anyhow::Result<()> {
        self.monitor.set_rules(&layout.rules, &layout.begun)?;
        for (ifindex, slot) in &layout.interfaces {
            // An interface that was just removed is not counted, and its row is removed next.
            self.monitor.count_interface(*ifindex, *slot);
        }
        Ok(())
    }

    /// Reads all counts, and resets those of an interval.
    pub fn read(&mut self) -> &ClassReading {
        self.monitor.read_classes(&mut self.reading);
        &self.reading
    }

    /// Sets the filters. Repeated after each layout, since classes are slots there.
    pub fn set_filters(&mut self, filters: &Filters, row_table: &RowTable) {
        // A configuration has no more filters than the core supports.
        self.monitor.set_filters(&filters.packets);
        let slots = |names: &[String]| -> Vec<u32> {
            names
                .iter()
                .flat_map(|name| row_table.slots_below(name))
                .collect()
        };
        let only = slots(&filters.only_classes);
        let except = slots(&filters.except_classes);
        self.monitor.filter_classes(&only, &except);
    }

    /// Closes silent flows in a part of the tables, if it is due. Returns whether it was.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn expire(&mut self, now: Instant) -> anyhow::Result<bool> {
        if now < self.next_expiry {
            return Ok(false);
        }
        self.next_expiry = now + EXPIRE_EVERY;
        let config = self.monitor.config();
        let sets = (config.flow_sets + config.half_sets).div_ceil(EXPIRE_PARTS);
        self.monitor.expire(monotonic_ns()?, sets)?;
        Ok(true)
    }

    /// Next time for [`Kernel::expire`].
    pub fn next_expiry(&self) -> Instant {
        self.next_expiry
    }

    /// Open flows of the class of a slot, those with the most bytes first. Walks the flow table.
    pub fn flows(&self, slot: u32, limit: usize) -> Vec<FlowView> {
        self.monitor.flows(slot, limit)
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        self.monitor.stats()
    }

    /// Kernel memory in bytes, and capacity of the flow table.
    pub fn size(&self) -> [u64; 2] {
        let config = self.monitor.config();
        let flows = u64::from(config.flow_sets) * u64::from(fairpath_core::WAYS);
        [self.monitor.bytes(), flows]
    }

    /// Readable when a link changed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.interfaces.fd()
    }
}

fn core_config(config: &Config) -> anyhow::Result<CoreConfig> {
    let monitor = &config.monitor;
    let base = CoreConfig::default().with_flows(monitor.flows);
    let mut core = base.with_classes(slots(config) - 1);
    core.mode = monitor.method.mode() as u32;
    core.icmp = u32::from(monitor.icmp);
    core.flow_timeout = nanos(monitor.flow_timeout);
    core.remote_v4 = u32::from(config.subnets.v4);
    core.remote_v6 = u32::from(config.subnets.v6);
    core.quiet = 1;
    Ok(core)
}
