//! Limits that the schedulers of several workers or CPUs share.

use super::{
    Function, NodeConfig, Over, Plan, Policy, SchedRuntimeError, Scheduler, Setting, decode_rate,
    policies,
};
use crate::limit::{HIGHEST, LOWEST, LimitConfig, LimitCpu, LimitRate};

/// The limits of a node; none: the node has its own rate, or no rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeLimits {
    /// Of its ceiling.
    pub ceil: Option<u32>,
    /// Of its floor.
    pub floor: Option<u32>,
}

/// The rates of a plan as limits, which all schedulers of this plan share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The limits. None is around another: each node of the tree waits for its own.
    pub limits: Vec<LimitConfig>,
    /// By node, the root first.
    pub nodes: Vec<NodeLimits>,
}

impl Share {
    /// The rates of a plan. O(nodes).
    ///
    /// # Errors
    /// [`SchedRuntimeError::Plan`]: a rate belongs to a child of a node over references, which cannot wait, or is not
    /// in the range of limits.
    pub fn of(plan: &Plan, customs: &[Policy]) -> Result<Share, SchedRuntimeError> {
        let mut share = Share::default();
        for (index, node) in plan.nodes.iter().enumerate() {
            let parent = plan.nodes.get((node.parent as usize).wrapping_sub(1));
            let policy = parent.and_then(|parent| policy_of(parent, customs));
            let has_due = policy.is_some_and(|policy| policy.wants & Policy::WANTS_DUE != 0);
            let times = policy.is_some_and(|policy| policy.functions.contains(&Function::SendTime));
            let has_ceil = times && node.ceil != 0;
            if has_ceil && parent.is_some_and(|parent| parent.over == Over::References) {
                return Err(SchedRuntimeError::Plan(format!(
                    "node {} has a ceiling below a node over references, which several schedulers cannot share: \
                     use one worker, or a parent over children",
                    index + 1
                )));
            }
            let rates = [node.ceil, node.floor].map(decode_rate);
            if has_ceil && rates.iter().any(|rate| (1..LOWEST).contains(rate)) {
                return Err(SchedRuntimeError::Plan(format!(
                    "node {} has a rate below {LOWEST} bit/s, which several schedulers cannot share: use one worker",
                    index + 1
                )));
            }
            let mut limit = |rate: LimitRate| {
                share.limits.push(LimitConfig { rate, parent: None });
                share.limits.len() as u32 - 1
            };
            share.nodes.push(NodeLimits {
                ceil: has_ceil.then(|| limit(limit_rate(node, Setting::Ceil, node.ceil))),
                floor: (has_due && node.floor != 0)
                    .then(|| limit(limit_rate(node, Setting::Floor, node.floor))),
            });
        }
        Ok(share)
    }
}

/// The limit of an encoded rate of a node, its ceiling or its floor. 0: it has none.
pub fn limit_rate(node: &NodeConfig, setting: Setting, rate: u64) -> LimitRate {
    let bits = match (rate, setting) {
        (0, Setting::Ceil) => HIGHEST,
        (rate, _) => decode_rate(rate).clamp(LOWEST, HIGHEST),
    };
    let usual = LimitRate::new(bits);
    LimitRate {
        burst: usual.burst.max(node.burst),
        ..usual
    }
}

fn policy_of<'a>(node: &NodeConfig, customs: &'a [Policy]) -> Option<&'a Policy> {
    let mut known = policies().iter().chain(customs);
    known.find(|policy| policy.id == node.policy)
}

impl Scheduler {
    /// Draws from limits that other schedulers share. `nodes` are the limits of its nodes, the root first. The plan has
    /// [`SchedConfig::limited`](super::SchedConfig::limited).
    ///
    /// # Errors
    /// [`SchedRuntimeError::Plan`]: the plan has no table of limits, or other nodes.
    pub fn draw_from(
        &mut self,
        cpu: LimitCpu,
        nodes: &[NodeLimits],
    ) -> Result<(), SchedRuntimeError> {
        if nodes.len() != self.limited as usize {
            return Err(SchedRuntimeError::Plan(format!(
                "limits of {} nodes do not fit a scheduler with limits of {} nodes",
                nodes.len(),
                self.limited
            )));
        }
        self.memory.set_limits(cpu.address(), cpu.number(), nodes);
        self.limits = Some(cpu);
        Ok(())
    }

    /// Changes the limits of one of its nodes. Nothing changes if it draws from none, or there is no such node.
    pub fn limit_node(&mut self, node: u32, limits: NodeLimits) {
        if self.limits.is_some() && (1..=self.limited).contains(&node) {
            self.memory.set_limits_of(node, limits);
        }
    }

    /// Draws from limits again, after [`Scheduler::release_limits`].
    pub fn resume_limits(&mut self, cpu: LimitCpu) {
        self.memory.set_limits(cpu.address(), cpu.number(), &[]);
        self.limits = Some(cpu);
    }

    /// The CPU of its limits, for another scheduler.
    pub fn release_limits(&mut self) -> Option<LimitCpu> {
        self.memory.clear_limits();
        self.limits.take()
    }
}
